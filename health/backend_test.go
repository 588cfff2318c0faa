package health

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// process is a backend process as the network sees it: when it ends, its port is closed and so are its connections.
type process struct {
	srv  *http.Server
	addr string
	done chan struct{}
}

func startProcess(t *testing.T, addr string, h http.Handler) *process {
	t.Helper()
	var lc net.ListenConfig
	ln, err := lc.Listen(t.Context(), "tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	p := &process{srv: &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}, addr: ln.Addr().String(), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		_ = p.srv.Serve(ln)
	}()
	t.Cleanup(p.kill)
	return p
}

func (p *process) kill() {
	_ = p.srv.Close()
	<-p.done
}

func (p *process) url(t *testing.T) *url.URL {
	t.Helper()
	return mustURL(t, "http://"+p.addr+"/mcp")
}

// dialer makes a Deps.Dial of a function.
func dialer(dial func(network, address string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(_ context.Context, network, address string) (net.Conn, error) { return dial(network, address) }
}

func mustURL(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// mcpServer is a real server with tools of these names.
func mcpServer(version string, tools ...string) *server.MCPServer {
	s := server.NewMCPServer("demo", version, server.WithToolCapabilities(true))
	for _, name := range tools {
		addTool(s, name, "does "+name)
	}
	return s
}

func addTool(s *server.MCPServer, name, description string) {
	s.AddTool(mcp.NewTool(name, mcp.WithDescription(description), mcp.WithString("arg", mcp.Required())),
		func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("ok"), nil
		})
}

func handler(s *server.MCPServer, opts ...server.StreamableHTTPOption) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/mcp", server.NewStreamableHTTPServer(s, opts...))
	mux.HandleFunc("/health", func(http.ResponseWriter, *http.Request) {})
	return mux
}

// watching runs a checker and collects its events.
type watching struct {
	*Checker
	t *testing.T

	mu     sync.Mutex
	events []Event
	news   chan struct{}
	done   chan error
}

func quick(u *url.URL) Config {
	cfg := DefaultConfig()
	cfg.Server, cfg.URL = "demo", u
	cfg.Settle = 30 * time.Millisecond
	cfg.ShrinkGrace = 150 * time.Millisecond
	cfg.EmptyGrace = 300 * time.Millisecond
	return cfg
}

func watch(t *testing.T, cfg Config, d Deps) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	w := watchUntil(ctx, t, cfg, d)
	t.Cleanup(func() {
		cancel()
		w.stopped()
	})
	return w
}

// watchUntil runs a checker until ctx ends.
func watchUntil(ctx context.Context, t *testing.T, cfg Config, d Deps) *watching {
	t.Helper()
	w := &watching{t: t, news: make(chan struct{}, 1), done: make(chan error, 1)}
	d.Notify = func(e Event) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.events = append(w.events, e)
		select {
		case w.news <- struct{}{}:
		default:
		}
	}
	c, err := New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	w.Checker = c
	go func() { w.done <- c.Run(ctx) }()
	return w
}

// stopped waits for the checker to stop.
func (w *watching) stopped() {
	w.t.Helper()
	if err := <-w.done; err != nil {
		w.t.Error(err)
	}
}

func (w *watching) probe() *probe {
	w.t.Helper()
	p, ok := w.backend.(*probe)
	if !ok {
		w.t.Fatal("not a real probe")
	}
	return p
}

func (w *watching) count(ok func(Event) bool) int {
	n := 0
	for _, e := range w.all() {
		if ok(e) {
			n++
		}
	}
	return n
}

// waitFor reports whether an event from an index on comes within a time.
func (w *watching) waitFor(from int, within time.Duration, ok func(Event) bool) bool {
	deadline := time.After(within)
	for {
		if events := w.all(); from < len(events) && slices.ContainsFunc(events[from:], ok) {
			return true
		}
		select {
		case <-w.news:
		case <-deadline:
			return false
		}
	}
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !ok() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}

func (w *watching) all() []Event {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.events)
}

// until waits for the first event from an index on for which ok holds, and returns it and the index after it.
func (w *watching) until(from int, what string, ok func(Event) bool) (Event, int) {
	w.t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		events := w.all()
		for i := from; i < len(events); i++ {
			if ok(events[i]) {
				return events[i], i + 1
			}
		}
		select {
		case <-w.news:
		case <-deadline:
			w.t.Fatalf("no event %q from %d on in:\n%s", what, from, describe(events))
		}
	}
}

func settledWith(names ...string) func(Event) bool {
	return func(e Event) bool {
		return e.State == Settled && e.Tools != nil && slices.Equal(e.Tools.names(), names)
	}
}

func inState(s State) func(Event) bool { return func(e Event) bool { return e.State == s } }

func swaps(events []Event) []string {
	var causes []string
	for _, e := range events {
		if e.Swap != nil {
			causes = append(causes, e.Swap.Cause)
		}
	}
	return causes
}

func describe(events []Event) string {
	var text strings.Builder
	for _, e := range events {
		fmt.Fprintf(&text, "%s epoch=%d reason=%q change=%q", e.State, e.Epoch, e.Reason, e.ChangeCause)
		if e.Swap != nil {
			fmt.Fprintf(&text, " swap=%s", e.Swap.Cause)
		}
		if e.Tools != nil {
			fmt.Fprintf(&text, " tools=%v", e.Tools.names())
		}
		text.WriteByte('\n')
	}
	return text.String()
}
