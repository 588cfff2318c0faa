package health

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/server"
	"github.com/prometheus/client_golang/prometheus"
)

// kinds are the ways in which a real server handles sessions.
func kinds() map[string][]server.StreamableHTTPOption {
	return map[string][]server.StreamableHTTPOption{
		"accepts any session": nil,
		"stateful":            {server.WithStateful(true)},
		"stateless":           {server.WithStateLess(true)},
	}
}

func TestCheckerStops(t *testing.T) {
	c, err := New(quick(mustURL(t, "http://127.0.0.1:1/mcp")), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	if _, err := c.Check(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("got %v", err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("it runs twice")
	}
	c.Suspect("nobody is there any more")
}

func TestSwapOfARealServer(t *testing.T) {
	for name, opts := range kinds() {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, "127.0.0.1:0", handler(mcpServer("1", "a", "b"), opts...))
			cfg := quick(p.url(t))
			cfg.ProbeInterval = time.Hour // no probe is going to find it
			w := watch(t, cfg, Deps{})
			first, n := w.until(0, "settled", settledWith("a", "b"))
			if first.Tools.ServerName != "demo" || first.Tools.ServerVersion != "1" {
				t.Errorf("server is %q %q", first.Tools.ServerName, first.Tools.ServerVersion)
			}
			p.kill()
			away, n := w.until(n, "away", inState(Away))
			if away.Reason != ReasonRefused {
				t.Errorf("away because %q", away.Reason)
			}
			startProcess(t, p.addr, handler(mcpServer("2", "a", "b", "c"), opts...))
			ready, n := w.until(n, "ready", inState(Ready))
			if ready.Epoch != 1 || ready.Swap == nil {
				t.Errorf("ready after the swap is %+v", ready)
			}
			second, _ := w.until(n, "settled", settledWith("a", "b", "c"))
			if second.ChangeCause != ChangeByRestart {
				t.Errorf("change by %q", second.ChangeCause)
			}
			if diff := cmp.Diff([]Change{{Tool: "c", Kind: ChangeAdded}}, second.Changes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{CauseRestart}, swaps(w.all())); diff != "" {
				t.Errorf("swaps:\n%s", diff)
			}
		})
	}
}

func TestSwapOverSSE(t *testing.T) {
	serve := func(s *server.MCPServer) http.Handler { return server.NewSSEServer(s) }
	p := startProcess(t, "127.0.0.1:0", serve(mcpServer("1", "a")))
	cfg := quick(mustURL(t, "http://"+p.addr+"/sse"))
	cfg.Transport = TransportSSE
	cfg.ProbeInterval = time.Hour
	w := watch(t, cfg, Deps{})
	_, n := w.until(0, "settled", settledWith("a"))
	p.kill()
	_, n = w.until(n, "away", inState(Away))
	s := mcpServer("2", "a", "b")
	startProcess(t, p.addr, serve(s))
	_, n = w.until(n, "settled", settledWith("a", "b"))
	addTool(s, "c", "comes later")
	e, _ := w.until(n, "settled", settledWith("a", "b", "c"))
	if e.ChangeCause != ChangeByListChanged {
		t.Errorf("change by %q", e.ChangeCause)
	}
	if diff := cmp.Diff([]string{CauseRestart}, swaps(w.all())); diff != "" {
		t.Errorf("swaps:\n%s", diff)
	}
}

// A backend may call itself by another name than the one that it was configured with.
func TestSSEBackendWithAnotherName(t *testing.T) {
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := ln.Addr().String()
	_, port, _ := net.SplitHostPort(addr)
	_ = ln.Close()
	for base, want := range map[string]func(Event) bool{
		"http://localhost:" + port: settledWith("a"),
		"http://evil.example":      func(e Event) bool { return e.State == Away && e.Reason == ReasonInvalid },
	} {
		p := startProcess(t, addr, server.NewSSEServer(mcpServer("1", "a"), server.WithBaseURL(base)))
		cfg := quick(mustURL(t, "http://"+addr+"/sse"))
		cfg.Transport = TransportSSE
		w := watch(t, cfg, Deps{})
		w.until(0, "verdict about "+base, want)
		p.kill()
	}
}

// The session that the probe holds: one, ended at the end, and replaced when it is lost. What the server asks is answered.
func TestProbeSession(t *testing.T) {
	s := newStub(t)
	s.withSession("s1")
	known := "s1"
	var mu sync.Mutex
	lost := func(w http.ResponseWriter, r *http.Request) bool {
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get("Mcp-Session-Id") != known {
			http.Error(w, "Bad Request: No valid session ID provided", http.StatusBadRequest)
			return true
		}
		return false
	}
	s.on("ping", func(w http.ResponseWriter, r *http.Request, m message) {
		if !lost(w, r) {
			result(w, m, `{}`)
		}
	})
	answers := make(chan string, 10)
	s.on("", func(w http.ResponseWriter, _ *http.Request, m message) {
		answers <- string(m.ID)
		w.WriteHeader(http.StatusAccepted)
	})
	s.on("GET", func(w http.ResponseWriter, r *http.Request, _ message) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, ": hello\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":\"p\",\"method\":\"ping\"}\r\n\r\ndata: {\"jsonrpc\":\"2.0\",\"id\":7,\"method\":\"roots/list\"}\n\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	})
	p := startProcess(t, "127.0.0.1:0", s)
	cfg := quick(p.url(t))
	cfg.ProbeInterval = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	w := watchUntil(ctx, t, cfg, Deps{})
	_, n := w.until(0, "settled", settledWith("a"))
	if x, y := <-answers, <-answers; x != `"p"` || y != "7" {
		t.Errorf("answered requests %s and %s", x, y)
	}
	mu.Lock()
	known = "s2"
	mu.Unlock()
	s.withSession("s2")
	_, n = w.until(n, "ready", inState(Ready))
	w.until(n, "settled", settledWith("a"))
	if diff := cmp.Diff([]string{CauseSessionLost}, swaps(w.all())); diff != "" {
		t.Errorf("swaps:\n%s", diff)
	}
	eventually(t, "another stream", func() bool { return s.got("GET") == 2 })
	cancel()
	w.stopped()
	if got := s.got("POST initialize"); got != 2 {
		t.Errorf("%d handshakes", got)
	}
	if got := s.got("DELETE"); got != 1 {
		t.Errorf("%d sessions ended", got)
	}
}

func TestHealthPath(t *testing.T) {
	s := newStub(t)
	status := http.StatusServiceUnavailable
	var mu sync.Mutex
	mux := http.NewServeMux()
	mux.Handle("/mcp", s)
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.WriteHeader(status)
	})
	p := startProcess(t, "127.0.0.1:0", mux)
	cfg := quick(p.url(t))
	cfg.HealthURL = mustURL(t, "http://"+p.addr+"/health")
	w := watch(t, cfg, Deps{})
	away, n := w.until(0, "away", inState(Away))
	if away.Reason != ReasonNotReady {
		t.Errorf("away because %q", away.Reason)
	}
	mu.Lock()
	status = http.StatusNoContent
	mu.Unlock()
	w.until(n, "settled", settledWith("a"))
}

func TestIdentityHeader(t *testing.T) {
	identity := make(chan string, 1)
	identity <- "1"
	s := newStub(t)
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := <-identity
		identity <- id
		w.Header().Set("X-Instance", id)
		s.ServeHTTP(w, r)
	})
	p := startProcess(t, "127.0.0.1:0", h)
	cfg := quick(p.url(t))
	cfg.IdentityHeader = "X-Instance"
	w := watch(t, cfg, Deps{})
	_, n := w.until(0, "settled", settledWith("a"))
	<-identity
	identity <- "2"
	w.Suspect("deployed")
	w.until(n, "ready", inState(Ready))
	w.Suspect("again")
	w.until(n+2, "settled", settledWith("a"))
	if diff := cmp.Diff([]string{CauseIdentity}, swaps(w.all())); diff != "" {
		t.Errorf("swaps:\n%s", diff)
	}
}

// The pid file changes while a supervisor hands the socket over: nothing is refused.
func TestPIDFile(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "run", "backend.pid")
	write := func(text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(pid), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(pid+".tmp", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(pid+".tmp", pid); err != nil {
			t.Fatal(err)
		}
	}
	write("999999991\n")
	s := newStub(t)
	p := startProcess(t, "127.0.0.1:0", s)
	cfg := quick(p.url(t))
	cfg.PIDFile = pid
	cfg.ProbeInterval = 50 * time.Millisecond
	w := watch(t, cfg, Deps{})
	_, n := w.until(0, "settled", settledWith("a"))
	pings := s.got("POST ping")
	eventually(t, "the sentinel and some looks", func() bool { return s.got("POST ping") > pings+4 })
	write("999999991\n") // touched
	write("999999992\n") // too early: the old process still serves
	if w.waitFor(n, 200*time.Millisecond, func(e Event) bool { return e.Swap != nil }) {
		t.Fatalf("a swap while the old process serves:\n%s", describe(w.all()))
	}
	w.probe().sentinel.client.CloseIdleConnections() // now it doesn't
	e, _ := w.until(n, "ready", func(e Event) bool { return e.Swap != nil })
	if e.Swap.Cause != CausePIDFile {
		t.Errorf("cause %q", e.Swap.Cause)
	}
}

// A marker that a deployment touches makes the tools be listed, whether the notice of it arrives or not.
func TestMarker(t *testing.T) {
	s := mcpServer("1", "a")
	p := startProcess(t, "127.0.0.1:0", handler(s, server.WithStateLess(true), server.WithDisableStreaming(true)))
	cfg := quick(p.url(t))
	cfg.Watch = []string{filepath.Join(t.TempDir(), "deployed")}
	w := watch(t, cfg, Deps{})
	_, n := w.until(0, "settled", settledWith("a"))
	addTool(s, "b", "deployed in place")
	if err := os.WriteFile(cfg.Watch[0], []byte("v2"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.until(n, "settled", settledWith("a", "b"))
	if got := swaps(w.all()); got != nil {
		t.Errorf("swaps %v", got)
	}
}

// Deps.Transport stands for a backend without a network, which says itself when no process is there.
func TestCustomTransport(t *testing.T) {
	h := handler(mcpServer("1", "a"), server.WithStateful(true))
	var mu sync.Mutex
	rt := roundTripper(func(r *http.Request) (*http.Response, error) {
		mu.Lock()
		now := h
		mu.Unlock()
		if now == nil {
			return nil, fmt.Errorf("the command isn't running: %w", syscall.ECONNREFUSED)
		}
		rec := httptest.NewRecorder()
		if r.Method == http.MethodGet {
			rec.WriteHeader(http.StatusMethodNotAllowed)
			return rec.Result(), nil
		}
		now.ServeHTTP(rec, r)
		return rec.Result(), nil
	})
	cfg := quick(mustURL(t, "http://stdio/mcp"))
	cfg.Transport = TransportStdio
	w := watch(t, cfg, Deps{Transport: rt})
	_, n := w.until(0, "settled", settledWith("a"))
	mu.Lock()
	h = nil
	mu.Unlock()
	w.Suspect("the command ended")
	_, n = w.until(n, "away", inState(Away))
	mu.Lock()
	h = handler(mcpServer("2", "a", "b"), server.WithStateful(true))
	mu.Unlock()
	w.until(n, "settled", settledWith("a", "b"))
	if diff := cmp.Diff([]string{CauseRestart}, swaps(w.all())); diff != "" {
		t.Errorf("swaps:\n%s", diff)
	}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Whatever fails, and however, no secret gets into a log or a metric.
func TestSecretsStayIn(t *testing.T) {
	const canary = "canary-7d1f"
	var logs bytes.Buffer
	var mu sync.Mutex
	log := slog.New(slog.NewJSONHandler(lockedWriter{&mu, &logs}, &slog.HandlerOptions{Level: slog.LevelDebug}))
	reg := prometheus.NewPedanticRegistry()
	s := newStub(t)
	s.withSession(canary)
	for _, method := range []string{"GET", "DELETE", "ping"} {
		s.on(method, func(http.ResponseWriter, *http.Request, message) { panic(http.ErrAbortHandler) })
	}
	p := startProcess(t, "127.0.0.1:0", s)
	cfg := quick(mustURL(t, "http://"+p.addr+"/mcp?key="+canary))
	cfg.ProbeInterval = 20 * time.Millisecond
	cfg.Headers = func() (http.Header, error) { return http.Header{"Authorization": {"Bearer " + canary}}, nil }
	ctx, cancel := context.WithCancel(t.Context())
	w := watchUntil(ctx, t, cfg, Deps{Logger: log, Metrics: NewMetrics(reg)})
	w.until(0, "away", inState(Away))
	s.on("initialize", func(w http.ResponseWriter, _ *http.Request, m message) {
		rpcFailure(w, http.StatusBadRequest, m, -32603, "no session for you")
	})
	refused := s.got("POST initialize")
	s.on("ping", func(w http.ResponseWriter, _ *http.Request, m message) {
		rpcFailure(w, http.StatusNotFound, m, -32001, "unknown session "+canary)
	})
	eventually(t, "refused handshakes", func() bool { return s.got("POST initialize") > refused+2 })
	p.kill()
	w.Suspect("test")
	w.until(w.count(inState(Away))+1, "away", func(e Event) bool { return e.Reason == ReasonRefused })
	cancel()
	w.stopped()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for _, f := range families {
		text.WriteString(f.String())
	}
	mu.Lock()
	defer mu.Unlock()
	text.Write(logs.Bytes())
	for _, e := range w.all() {
		fmt.Fprintf(&text, "%+v", e)
	}
	if strings.Contains(text.String(), canary) {
		t.Errorf("the secret is in:\n%s", text.String())
	}
}

type lockedWriter struct {
	mu *sync.Mutex
	b  *bytes.Buffer
}

func (w lockedWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(p)
}
