package health

import (
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/server"
)

// A process that is asked to stop may close its port and its sessions first, and answer on its connections for a while.
func TestProcessThatDrainsIsNotTakenForTheNext(t *testing.T) {
	var h atomic.Pointer[http.Handler]
	stateful := func(version string, tools ...string) http.Handler {
		return handler(mcpServer(version, tools...), server.WithStateful(true))
	}
	set := func(next http.Handler) { h.Store(&next) }
	set(stateful("1", "a"))
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	old := &http.Server{
		Handler:           http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { (*h.Load()).ServeHTTP(w, r) }),
		ReadHeaderTimeout: time.Minute,
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = old.Serve(ln)
	}()
	defer old.Close()

	cfg := quick(mustURL(t, "http://"+ln.Addr().String()+"/mcp"))
	cfg.ProbeInterval = time.Hour
	w := watch(t, cfg, Deps{})
	_, n := w.until(0, "settled", settledWith("a"))

	_ = ln.Close()
	<-done
	set(stateful("1", "a")) // which knows no session of before
	w.Suspect("a session is unknown")
	_, n = w.until(n, "away", inState(Away))
	_ = old.Close()

	startProcess(t, ln.Addr().String(), stateful("2", "a", "b"))
	ready, n := w.until(n, "ready", inState(Ready))
	if ready.Epoch != 1 || ready.Swap == nil {
		t.Errorf("ready after the swap is %+v", ready)
	}
	w.until(n, "settled", settledWith("a", "b"))
	if diff := cmp.Diff([]string{CauseSessionLost}, swaps(w.all())); diff != "" {
		t.Errorf("swaps:\n%s\n%s", diff, describe(w.all()))
	}
}

// The connection of a stream that ended is free again, and leads to the process of before: no question may get it.
func TestWatchStreamHasItsOwnConnections(t *testing.T) {
	conns := make(chan string, 1)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conns <- r.RemoteAddr
		w.Header().Set("Content-Type", "text/event-stream")
	}))
	defer srv.Close()
	cfg := quick(mustURL(t, srv.URL))
	p, err := newProbe(&cfg, Deps{}, NewMetrics(nil), slog.New(slog.DiscardHandler), signals{}, true)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close(t.Context())
	via := func(c *http.Client) string {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatal(err)
		}
		return <-conns
	}
	stream := via(p.watcher.client)
	for range 3 {
		if conn := via(p.client); conn == stream {
			t.Fatal("a question went over the connection of the stream")
		}
	}
}
