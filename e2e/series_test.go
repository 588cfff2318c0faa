//go:build unix

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// hostile is part of every name that TestSeries makes up.
const hostile = "hostile"

// TestSeries sends names that nobody knows, wherever a client can put one, while
// the backend is swapped and conversations are refreshed. None of them becomes a
// label, and nothing that happens makes a new series. SERIES_DURATION makes a
// longer test of it, with ten times as many names and conversations.
func TestSeries(t *testing.T) {
	long(t)
	t.Parallel()
	names, conversations, least := 1000, 100, time.Duration(0)
	if s := os.Getenv("SERIES_DURATION"); s != "" {
		var err error
		if least, err = time.ParseDuration(s); err != nil {
			t.Fatal(err)
		}
		names, conversations = 10*names, 10*conversations
	}
	b := startBackend(t)
	a := startAgents(t)
	a.intercept(func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		w.WriteHeader(http.StatusNoContent)
		return true
	})
	s := startSidecar(t, b, "--agent-server", a.url())
	before := s.series()

	for n := range conversations {
		s.register(id(n))
	}
	done := make(chan struct{})
	var sent atomic.Int64
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			c := &http.Client{Transport: &http.Transport{}}
			defer c.CloseIdleConnections()
			for n := sent.Add(1); n <= int64(names) && t.Context().Err() == nil; n = sent.Add(1) {
				sendHostile(t, c, s, int(n))
			}
		})
	}
	go func() { wg.Wait(); close(done) }()
	begin := time.Now()
	for swaps := uint64(1); ; swaps++ {
		b.kill()
		b.start([]string{"v1", "v2"}[swaps%2])
		proc.Eventually(t, "the swap to be seen", func() bool {
			got := s.server()
			return got.State == "settled" && got.Swaps >= swaps
		})
		if swaps < 3 || time.Since(begin) < least {
			continue
		}
		select {
		case <-done:
		default:
			continue
		}
		t.Logf("%d swaps, %d names, %d conversations, %d series", swaps, names, len(s.allConversations()), len(before))
		break
	}
	proc.Eventually(t, "refreshes, and unknown methods", func() bool {
		unknown := 0.0
		for _, outcome := range []string{"ok", "rpc_error", "client_error"} {
			unknown += s.metric(`proxy_requests_total{method="other",outcome="` + outcome + `",server="default"}`)
		}
		return s.metric("refreshes_total") > 0 && unknown > 0
	})
	// What began with the last swap goes on; it is as good a moment as any.
	after := s.series()
	for name := range after {
		if strings.Contains(strings.ToLower(name), hostile) || strings.Contains(name, "c0ffee") {
			t.Errorf("a name became a label: %s", name)
		}
		if !before[name] {
			t.Errorf("there is a new series: %s", name)
		}
	}
}

// series returns every series that is exposed: name and labels.
func (s *sidecar) series() map[string]bool {
	s.t.Helper()
	all := map[string]bool{}
	for series := range proc.Metrics(s.t, "http://"+s.ops+"/metrics") {
		all[series] = true
	}
	return all
}

// allConversations returns the ids of all registered conversations.
func (s *sidecar) allConversations() []string {
	s.t.Helper()
	var ids []string
	for q := (conversation.Query{Limit: 1000}); ; {
		page, err := s.api.Conversations(s.t.Context(), q)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, c := range page.Conversations {
			ids = append(ids, c.ID)
		}
		if page.Next == "" {
			return ids
		}
		q.Cursor = page.Next
	}
}

// sendHostile sends one request with a name of its own in one of many places.
// What comes back doesn't matter.
func sendHostile(t *testing.T, c *http.Client, s *sidecar, n int) {
	t.Helper()
	name := fmt.Sprintf(`%s-%d`, hostile, n)
	quoted := name + `\"} 1\nmcp_sidecar_` + hostile + `{x=\"`
	method, url, header := http.MethodPost, s.url(), http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	call := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"}}}`
	body := call
	switch n % 12 {
	case 0:
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","method":"tools/call","params":{"name":"%s","arguments":{}}}`, quoted, quoted)
	case 1:
		body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"%s"}`, quoted)
	case 2:
		body = fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/%s"}`, name)
	case 3:
		url = s.urlOf(name)
	case 4:
		url = s.urlOf(name + "%22%7d%0a")
	case 5:
		header.Set("X-OpenHands-ServerConversation-ID", name)
		header.Set("X-Sidecar-Agent-Server", "http://"+name+".example")
	case 6:
		header.Set("X-"+name, name)
		header.Set("Mcp-Protocol-Version", name)
		header.Set("Mcp-Method", name)
	case 7:
		header.Set("Mcp-Session-Id", name)
	case 8:
		header.Set("Origin", "https://"+name+".example")
	case 9:
		method = strings.ToUpper(hostile) + strconv.Itoa(n)
	case 10:
		url = "http://" + s.listen + "/" + name + "?" + name + "=" + name
	case 11:
		url = "http://" + s.ops + "/" + name
		method, body = http.MethodGet, ""
	}
	ctx, cancel := context.WithTimeout(t.Context(), proc.Patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		t.Error(err)
		return
	}
	r.Header = header
	if resp, err := c.Do(r); err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
	}
}
