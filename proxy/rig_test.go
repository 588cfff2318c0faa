package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// process is one life of a backend.
type process struct {
	handler http.Handler
	tools   []ToolHints
}

// backend is an address behind which processes come and go.
type backend struct {
	t    *testing.T
	addr string

	mu    sync.Mutex
	srv   *http.Server
	proc  process
	epoch uint64
	log   []call
}

// call is a request that a backend got.
type call struct {
	epoch   uint64
	http    string
	method  string
	session string
	id      string
	body    string
	header  http.Header
}

func newBackend(t *testing.T) *backend {
	t.Helper()

	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	b := &backend{t: t, addr: ln.Addr().String()}
	_ = ln.Close()

	t.Cleanup(b.kill)

	return b
}

// start begins a new process.
func (b *backend) start(p process) {
	b.t.Helper()

	var ln net.Listener

	eventually(b.t, "the backend's address is free", func() (err error) {
		ln, err = net.Listen("tcp", b.addr)
		return err
	})

	b.mu.Lock()
	defer b.mu.Unlock()

	b.epoch++
	epoch := b.epoch
	b.proc = p
	b.srv = &http.Server{ReadHeaderTimeout: 5 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))

		var m struct {
			Method string
			ID     json.RawMessage
		}

		_ = json.Unmarshal(body, &m)

		b.mu.Lock()
		b.log = append(b.log, call{epoch, r.Method, m.Method, r.Header.Get("Mcp-Session-Id"), string(m.ID), string(body), r.Header.Clone()})
		b.mu.Unlock()

		p.handler.ServeHTTP(w, r)
	})}

	srv := b.srv

	go func() { _ = srv.Serve(ln) }()
}

// kill ends the process: its connections break.
func (b *backend) kill() {
	b.mu.Lock()
	srv := b.srv
	b.srv = nil
	b.mu.Unlock()

	if srv != nil {
		_ = srv.Close()
	}
}

func (b *backend) calls(keep func(call) bool) []call {
	b.mu.Lock()
	defer b.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(b.log), func(c call) bool { return !keep(c) })
}

func (b *backend) count(epoch uint64, method string) int {
	return len(b.calls(func(c call) bool { return c.epoch == epoch && c.method == method }))
}

// state is what a health check would find.
func (b *backend) state() BackendState {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.srv == nil {
		return BackendState{Phase: Away, Epoch: b.epoch}
	}

	return BackendState{Phase: Settled, Epoch: b.epoch, Tools: b.proc.tools}
}

// rig is a proxy before a backend, with a health check that looks when it is told
// to, and often while the backend is away.
type rig struct {
	t       *testing.T
	proxy   *Proxy
	backend *backend
	front   *httptest.Server
	keys    *Keyring
	blobs   BlobStore
	convs   *conversations
	look    chan string
	stop    func()

	mu         sync.Mutex
	generation uint64
	tools      string
	growing    chan struct{} // until it is closed, no list settles
	blind      bool          // the health check says nothing
}

type rigOption func(*Config, *Deps, *rig)

func newRig(t *testing.T, opts ...rigOption) *rig {
	t.Helper()

	keys, err := NewKeyring(bytes.Repeat([]byte{7}, KeySize))
	if err != nil {
		t.Fatal(err)
	}

	r := &rig{
		t: t, backend: newBackend(t), keys: keys, blobs: newMemoryBlobs(), convs: &conversations{},
		look: make(chan string, 1), growing: make(chan struct{}),
	}

	close(r.growing)
	r.build(opts...)

	return r
}

// grow keeps lists from settling until the returned function is called.
func (r *rig) grow() (settle func()) {
	r.mu.Lock()
	defer r.mu.Unlock()

	c := make(chan struct{})
	r.growing = c

	return sync.OnceFunc(func() { close(c) })
}

// build makes a proxy and serves it. A second call replaces it by a successor.
func (r *rig) build(opts ...rigOption) {
	r.t.Helper()

	if r.stop != nil {
		r.stop()
	}

	upstream, err := url.Parse("http://" + r.backend.addr + "/mcp")
	if err != nil {
		r.t.Fatal(err)
	}

	cfg := DefaultConfig()
	cfg.Servers = []Server{DefaultServer(upstream)}
	cfg.Servers[0].Hold, cfg.Servers[0].HoldCall = 10*time.Second, 10*time.Second
	cfg.NoticeQuiet = 100 * time.Millisecond

	deps := Deps{Keys: r.keys, Blobs: r.blobs, Conversations: r.convs, Suspect: r.suspect, Logger: slog.New(slog.DiscardHandler)}

	for _, o := range opts {
		o(&cfg, &deps, r)
	}

	if r.proxy, err = New(cfg, deps); err != nil {
		r.t.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())

	var running sync.WaitGroup

	p := r.proxy
	running.Go(func() { _ = p.Run(ctx) })
	running.Go(func() { r.health(ctx, p) })

	front := httptest.NewServer(p)
	r.front = front

	r.stop = sync.OnceFunc(func() {
		p.Quiesce()
		front.CloseClientConnections()
		front.Close()
		stop()
		running.Wait()
	})
	r.t.Cleanup(r.stop)
}

func (r *rig) suspect(_, reason string) {
	select {
	case r.look <- reason:
	default:
	}
}

// health looks at the backend.
func (r *rig) health(ctx context.Context, p *Proxy) {
	timer := time.NewTimer(0)
	defer timer.Stop()

	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-r.look:
		}

		r.mu.Lock()
		blind, growing := r.blind, r.growing
		r.mu.Unlock()

		state := r.backend.state()

		switch {
		case blind:
		case state.Phase == Away:
			p.SetBackend("default", state)
			timer.Reset(5 * time.Millisecond)
		default:
			ready := state
			ready.Phase, ready.Tools = Ready, nil
			p.SetBackend("default", ready)

			select {
			case <-growing:
			case <-r.look: // look again
				r.suspect("", "again")
				continue
			case <-ctx.Done():
				return
			}

			r.mu.Lock()
			if names := fmt.Sprint(state.Tools); names != r.tools || r.generation == 0 {
				r.tools = names
				r.generation++
			}

			state.Generation = r.generation
			r.mu.Unlock()

			p.SetBackend("default", state)
		}
	}
}

// swap replaces the process.
func (r *rig) swap(p process) {
	r.backend.kill()
	r.backend.start(p)
}

// settled waits for the verdict on the present process.
func (r *rig) settled() {
	r.t.Helper()
	r.suspect("", "test")
	eventually(r.t, "the backend has settled", func() error {
		v := r.proxy.current.Load().servers["default"].gate.look()
		if st := r.backend.state(); v.state.Phase != Settled || v.state.Epoch != st.Epoch {
			return fmt.Errorf("phase %v, epoch %d", v.state.Phase, v.state.Epoch)
		}

		return nil
	})
}

// conversations keeps what it is told.
type conversations struct {
	mu     sync.Mutex
	seen   []conversation.Sighting
	listed []conversation.Listing
	lost   []conversation.ID
}

func (c *conversations) Seen(s conversation.Sighting) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.seen = append(c.seen, s)
}

func (c *conversations) Listed(l conversation.Listing) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.listed = append(c.listed, l)
}

func (c *conversations) SessionLost(id conversation.ID, _ string) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.lost = append(c.lost, id)
}

func (c *conversations) all() (seen []conversation.Sighting, listed []conversation.Listing, lost []conversation.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()

	return slices.Clone(c.seen), slices.Clone(c.listed), slices.Clone(c.lost)
}

func eventually(t *testing.T, what string, check func() error) {
	t.Helper()

	deadline := time.Now().Add(10 * time.Second)

	for {
		err := check()
		if err == nil {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}

		select {
		case <-time.After(2 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// mcpServer is a real MCP server with tools of the given names.
func mcpServer(names []string, opts ...mcpserver.StreamableHTTPOption) process {
	s := mcpserver.NewMCPServer("backend", "1", mcpserver.WithToolCapabilities(true), mcpserver.WithLogging(), mcpserver.WithResourceCapabilities(true, true))

	var hints []ToolHints

	for _, n := range names {
		s.AddTool(mcp.NewTool(n), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("ran " + n), nil
		})

		hints = append(hints, ToolHints{Name: n, Digest: n})
	}

	return process{handler: mcpserver.NewStreamableHTTPServer(s, opts...), tools: hints}
}
