package stdio

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

func TestShared(t *testing.T) {
	cfg := testConfig(t, "plain")
	cfg.Shared = true
	f := start(t, cfg)

	status, old := f.post("", initRequest(strings.Replace(initParams, "2025-11-25", "2025-03-26", 1)))
	if want := `{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"2025-03-26"`; status != http.StatusOK || !strings.HasPrefix(old, want) {
		t.Errorf("got %d %s", status, old)
	}

	status, future := f.post("", initRequest(strings.Replace(initParams, "2025-11-25", "2025-12-31", 1)))
	if want := `{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"2025-11-25"`; status != http.StatusOK || !strings.HasPrefix(future, want) {
		t.Errorf("got %d %s", status, future)
	}

	one, two := f.open(), f.open()
	if f.pid(one) != f.pid(two) {
		t.Error("there are two processes")
	}

	if n := strings.Count(f.log.String(), "line=initialized"); n != 1 {
		t.Errorf("it was initialised %d times", n)
	}

	// Equal ids and progress tokens of two sessions at the same time.
	file := filepath.Join(t.TempDir(), "go on")
	answers := make(chan string, 2)

	for _, s := range []string{one, two} {
		go func() {
			_, body := f.post(s, toolCall("1", "wait", "file", file))
			answers <- body
		}()
	}

	eventually(t, "both run", func() bool {
		p := f.session(one).proc
		p.mu.Lock()
		defer p.mu.Unlock()

		return len(p.pending) == 2
	})

	for _, token := range []string{`"t"`, `1`} {
		_, body := f.post(one, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":`+token+`},"name":"progress"}}`)
		if got := postEvents(t, body); len(got) != 4 || !strings.Contains(got[0], `"progressToken":`+token) {
			t.Errorf("got %s", body)
		}
	}

	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}

	for range 2 {
		if body := <-answers; !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":1,`) {
			t.Errorf("got %s", body)
		}
	}

	// Nothing of one client reaches the other, but that lists changed.
	a, b := f.listen(one), f.listen(two)
	f.text(one, "notice", "method", "notifications/tools/list_changed")

	for _, s := range []*events{a, b} {
		s.want(listChanged)
	}

	_, body := f.post(one, toolCall("1", "notice", "method", "notifications/message"))
	if got := postEvents(t, body); len(got) != 2 {
		t.Errorf("got %s", body)
	}

	if got := f.text(one, "ask", "method", "ping"); got != "{}" {
		t.Errorf("got %s", got)
	}

	if got := f.text(one, "ask", "method", "roots/list"); !strings.Contains(got, "-32601") {
		t.Errorf("got %s", got)
	}

	if status, _ := f.post(one, `{"jsonrpc":"2.0","id":"q","result":{}}`); status != http.StatusAccepted {
		t.Errorf("got %d", status)
	}

	// The end of a session isn't that of the process, the end of the process is
	// that of all sessions.
	if got := f.status(http.MethodDelete, one); got != http.StatusOK {
		t.Errorf("got %d", got)
	}

	a.end(io.EOF)

	if err := f.failing(t.Context(), two, toolCall("1", "die")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}

	b.end(io.ErrUnexpectedEOF)

	if f.session(two) != nil || f.swaps.Load() != 1 {
		t.Errorf("the swap was told %d times", f.swaps.Load())
	}

	f.pid(f.open())
}

func statelessRequest(id, method, params string) (body string, header []string) {
	meta := `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	body = fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{%s%s}}`, id, method, meta, params)

	return body, []string{mcp.HeaderProtocolVersion, "2026-07-28", mcp.HeaderMethod, method}
}

func TestStateless(t *testing.T) {
	f := start(t, testConfig(t, "plain"))

	for range 2 {
		body, header := statelessRequest(`"a"`, "tools/call", `,"name":"pid"`)
		header = append(header, mcp.HeaderName, "pid")

		if status, text := f.post("", body, header...); status != http.StatusOK || !strings.HasPrefix(text, `{"jsonrpc":"2.0","id":"a","result":`) {
			t.Errorf("got %d %s", status, text)
		}
	}

	body, header := statelessRequest("1", "server/discover", "")
	if status, text := f.post("", body, header...); status != http.StatusNotFound || !strings.Contains(text, "-32601") {
		t.Errorf("got %d %s", status, text)
	}

	if status, text := f.post("", body, append(header, mcp.HeaderMethod, "ping")...); status != http.StatusBadRequest || !strings.Contains(text, "-32020") {
		t.Errorf("got %d %s", status, text)
	}

	if status, text := f.post("", body, append(header, mcp.HeaderProtocolVersion, "2026-08-28")...); status != http.StatusBadRequest || !strings.Contains(text, "-32020") {
		t.Errorf("got %d %s", status, text)
	}

	// A subscription is answered by a stream, and ended by leaving it.
	body, header = statelessRequest(`"sub"`, methodListen, "")

	resp, err := f.do(t.Context(), http.MethodPost, "", body, header...)
	if err != nil {
		t.Fatal(err)
	}

	(&events{t, bufio.NewReader(resp.Body)}).want(
		`{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"sub"}}}`)

	_ = resp.Body.Close()

	eventually(t, "the process is told", func() bool { return strings.Contains(f.log.String(), "cancelled ") })

	if n := strings.Count(f.log.String(), "was started"); n != 1 {
		t.Errorf("%d processes were started", n)
	}
}
