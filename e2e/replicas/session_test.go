//go:build unix && replicas

package replicas

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestSessionOnTwoPods speaks to two pods in turn with one session. The backend asks its client something; the answer comes to the other pod.
func TestSessionOnTwoPods(t *testing.T) {
	proc.Need(t, "redis-server")
	proc.Need(t, "haproxy")
	f := startFleet(t, 2)
	one, two := f.pods[0], f.pods[1]
	c := &http.Client{}
	session := ""
	send := func(p *pod, method, body string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+p.listen+"/mcp", strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Host = f.front
		r.Header.Set("Accept", "application/json, text/event-stream")
		if method == http.MethodPost {
			r.Header.Set("Content-Type", "application/json")
		}
		if session != "" {
			r.Header.Set("Mcp-Session-Id", session)
			r.Header.Set("Mcp-Protocol-Version", "2025-06-18")
		}
		resp, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	post := func(p *pod, body string) (int, string) {
		resp := send(p, http.MethodPost, body)
		defer resp.Body.Close()
		b, _ := io.ReadAll(resp.Body)
		return resp.StatusCode, string(b)
	}

	resp := send(one, http.MethodPost, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18",`+
		`"capabilities":{"elicitation":{}},"clientInfo":{"name":"test","version":"1"}}}`)
	session = resp.Header.Get("Mcp-Session-Id")
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	if status, body := post(two, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != http.StatusAccepted {
		t.Fatalf("initialized: %d %s", status, body)
	}
	for i, p := range []*pod{one, two, one, two} {
		status, body := post(p, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"balance","arguments":{}}}`, 10+i))
		if status != 200 || !strings.Contains(body, `"result"`) {
			t.Errorf("a call at %s: %d %s", p.name, status, body)
		}
	}

	// The question may come on the call's stream or on the one for everything else.
	stream := send(one, http.MethodGet, "")
	defer stream.Body.Close()
	call := send(one, http.MethodPost, `{"jsonrpc":"2.0","id":20,"method":"tools/call","params":{"name":"elicit","arguments":{}}}`)
	defer call.Body.Close()
	asked, ended := make(chan string, 8), make(chan string, 1)
	read := func(body io.Reader) {
		events := bufio.NewScanner(body)
		for events.Scan() {
			id := regexp.MustCompile(`"id":("[^"]*"|[0-9]+)`).FindStringSubmatch(events.Text())
			switch {
			case id == nil:
			case strings.Contains(events.Text(), "elicitation/create"):
				asked <- id[1]
			case id[1] == "20":
				ended <- events.Text()
			}
		}
	}
	go read(stream.Body)
	go read(call.Body)
	var id string
	select {
	case id = <-asked:
	case body := <-ended:
		t.Fatalf("the client is asked nothing: %s", body)
	case <-time.After(proc.Patience):
		t.Fatal("the client is asked nothing")
	}
	if status, body := post(two, `{"jsonrpc":"2.0","id":`+id+`,"result":{"action":"accept","content":{}}}`); status != http.StatusAccepted {
		t.Errorf("the answer: %d %s", status, body)
	}
	select {
	case body := <-ended:
		if !strings.Contains(body, `"result"`) || strings.Contains(body, `"isError":true`) {
			t.Errorf("the call ended with %s", body)
		}
	case <-time.After(proc.Patience):
		t.Fatal("the call doesn't end")
	}

	end := send(two, http.MethodDelete, "")
	end.Body.Close()
	proc.Eventually(t, "the end of the session at the other pod", func() bool {
		status, _ := post(one, `{"jsonrpc":"2.0","id":30,"method":"tools/list","params":{}}`)
		return status == http.StatusNotFound
	})
}
