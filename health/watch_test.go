package health

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/server"
)

// The backend's own notice comes long before the next periodic listing.
func TestListChanged(t *testing.T) {
	for name, opts := range kinds() {
		t.Run(name, func(t *testing.T) { testListChanged(t, opts...) })
	}
}

func testListChanged(t *testing.T, opts ...server.StreamableHTTPOption) {
	t.Helper()
	s := mcpServer("1", "a")
	p := startProcess(t, "127.0.0.1:0", handler(s, opts...))
	w := watch(t, quick(p.url(t)), Deps{})
	_, n := w.until(0, "settled", settledWith("a"))
	// The stream opens a moment after the handshake.
	deadline := time.Now().Add(5 * time.Second)
	for i := 0; ; i++ {
		addTool(s, fmt.Sprint("b", i), "another one")
		if w.waitFor(n, 300*time.Millisecond, func(e Event) bool { return e.ChangeCause == ChangeByListChanged }) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no change by a notice in:\n%s", describe(w.all()))
		}
	}
	if got := swaps(w.all()); got != nil {
		t.Errorf("swaps %v", got)
	}
}

func TestListChangedOfAModernServer(t *testing.T) {
	s := newStub(t)
	s.modernOnly()
	tools := make(chan string, 1)
	listening := make(chan struct{})
	var once sync.Once
	s.on("subscriptions/listen", func(w http.ResponseWriter, r *http.Request, m message) {
		if !m.Params.Notifications["toolsListChanged"] {
			t.Errorf("listens for %v", m.Params.Notifications)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(method, params string) {
			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":%s}\n\n", method, params)
			_ = http.NewResponseController(w).Flush()
		}
		send("notifications/subscriptions/acknowledged", `{"notifications":{"toolsListChanged":true}}`)
		once.Do(func() { close(listening) })
		select {
		case list := <-tools:
			s.on("tools/list", func(w http.ResponseWriter, _ *http.Request, m message) { result(w, m, list) })
			send("notifications/tools/list_changed", `{}`)
			<-r.Context().Done()
		case <-r.Context().Done():
		}
	})
	p := startProcess(t, "127.0.0.1:0", s)
	w := watch(t, quick(p.url(t)), Deps{})
	_, n := w.until(0, "settled", settledWith("a"))
	<-listening
	tools <- `{"tools":[{"name":"b"}]}`
	e, _ := w.until(n, "settled", settledWith("b"))
	if e.ChangeCause != ChangeByListChanged {
		t.Errorf("change by %q", e.ChangeCause)
	}
	if got := s.got("POST initialize"); got != 1 {
		t.Errorf("asked %d times for the older handshake", got)
	}
	p.kill()
	_, n = w.until(n, "away", inState(Away))
	startProcess(t, p.addr, s)
	_, n = w.until(n, "ready", inState(Ready))
	w.until(n, "settled", settledWith("b"))
	if diff := cmp.Diff([]string{CauseRestart}, swaps(w.all())); diff != "" {
		t.Errorf("swaps:\n%s", diff)
	}
}

// A listen stream that honours nothing is given up.
func TestUnhonouredListen(t *testing.T) {
	s := newStub(t)
	s.modernOnly()
	s.on("subscriptions/listen", func(w http.ResponseWriter, r *http.Request, _ message) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/subscriptions/acknowledged\",\"params\":{\"notifications\":{}}}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	p := startProcess(t, "127.0.0.1:0", s)
	cfg := quick(p.url(t))
	cfg.ProbeInterval = 20 * time.Millisecond
	w := watch(t, cfg, Deps{})
	w.until(0, "settled", settledWith("a"))
	eventually(t, "many probes", func() bool { return s.got("POST server/discover") > 20 })
	if got := s.got("POST subscriptions/listen"); got != 1 {
		t.Errorf("listened %d times", got)
	}
}

// A server that offers no stream is asked once.
func TestNoStreamOffered(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter, *http.Request, message){
		"405":        func(w http.ResponseWriter, _ *http.Request, _ message) { w.WriteHeader(http.StatusMethodNotAllowed) },
		"a web page": func(w http.ResponseWriter, _ *http.Request, _ message) { fmt.Fprint(w, "<html>") },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			s.withSession("s1")
			s.on("GET", answer)
			p := startProcess(t, "127.0.0.1:0", s)
			cfg := quick(p.url(t))
			cfg.ProbeInterval = 10 * time.Millisecond
			w := watch(t, cfg, Deps{})
			w.until(0, "settled", settledWith("a"))
			eventually(t, "many probes", func() bool { return s.got("POST ping") > 30 })
			if got := s.got("GET"); got != 1 {
				t.Errorf("asked %d times", got)
			}
		})
	}
}
