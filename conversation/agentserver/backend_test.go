package agentserver_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// backend is an MCP server on one address, which can be swapped: its process,
// sessions and tools then are new ones.
type backend struct {
	addr    string
	options []server.StreamableHTTPOption
	paging  int

	http    *http.Server
	serving sync.WaitGroup
	mcp     *server.MCPServer

	mu        sync.Mutex
	calls     []string // JSON-RPC methods, or "DELETE" and "GET", in order, over all processes
	headers   http.Header
	intercept func(method string, w http.ResponseWriter) bool // true when it answered
}

// newBackend starts a backend whose sessions end with its process.
func newBackend(t *testing.T, tools ...string) *backend {
	t.Helper()
	return startBackend(t, &backend{options: []server.StreamableHTTPOption{server.WithStateful(true)}}, tools...)
}

func startBackend(t *testing.T, b *backend, tools ...string) *backend {
	t.Helper()
	b.start(t, tools...)
	t.Cleanup(b.stop)
	return b
}

// start starts a process; after stop, on the address of the one before.
func (b *backend) start(t *testing.T, tools ...string) {
	t.Helper()
	addr := b.addr
	if addr == "" {
		addr = "127.0.0.1:0"
	}
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	b.addr = listener.Addr().String()
	options := []server.ServerOption{server.WithToolCapabilities(true)}
	if b.paging > 0 {
		options = append(options, server.WithPaginationLimit(b.paging))
	}
	b.mcp = server.NewMCPServer("backend", "1", options...)
	b.setTools(tools...)
	handler := server.NewStreamableHTTPServer(b.mcp, b.options...)
	b.http = &http.Server{Handler: b.record(handler), ReadHeaderTimeout: time.Minute}
	b.serving.Go(func() { _ = b.http.Serve(listener) })
}

// stop ends the process at once, with everything that it has under way.
func (b *backend) stop() {
	_ = b.http.Close()
	b.serving.Wait()
}

func (b *backend) swap(t *testing.T, tools ...string) {
	t.Helper()
	b.stop()
	b.start(t, tools...)
}

// setTools makes tools that answer their name. One named "slow" waits until its
// caller gives up.
func (b *backend) setTools(names ...string) {
	tools := make([]server.ServerTool, len(names))
	for i, name := range names {
		tools[i] = server.ServerTool{
			Tool: mcp.NewTool(name, mcp.WithDescription("does "+name)),
			Handler: func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				if name == "slow" {
					<-ctx.Done()
				}
				return mcp.NewToolResultText(name), nil
			},
		}
	}
	b.mcp.SetTools(tools...)
}

func (b *backend) record(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		method := r.Method
		if r.Method == http.MethodPost {
			var message struct {
				Method string `json:"method"`
			}
			_ = json.Unmarshal(body, &message)
			method = message.Method
		}
		b.mu.Lock()
		b.calls = append(b.calls, method)
		b.headers = r.Header.Clone()
		intercept := b.intercept
		b.mu.Unlock()
		if intercept != nil && intercept(method, w) {
			return
		}
		next.ServeHTTP(w, r)
	})
}

func (b *backend) onRequest(f func(method string, w http.ResponseWriter) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.intercept = f
}

// take returns the requests since the last take, without the streams that
// clients open on their own.
func (b *backend) take() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := slices.DeleteFunc(b.calls, func(call string) bool { return call == http.MethodGet })
	b.calls = nil
	return append([]string(nil), calls...) // nil when there were none
}

func (b *backend) count(method string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := 0
	for _, call := range b.calls {
		if call == method {
			n++
		}
	}
	return n
}

func (b *backend) url() string { return "http://" + b.addr + "/mcp" }

// as describes the backend as an MCP server of a conversation.
func (b *backend) as(name string) agentserver.MCPServer {
	return agentserver.MCPServer{Name: name, URL: b.url()}
}

func newServer(t *testing.T, d agentserver.Deps, change ...func(*agentserver.Config)) *agentserver.Server {
	t.Helper()
	cfg := agentserver.DefaultConfig()
	for _, f := range change {
		f(&cfg)
	}
	s, err := agentserver.New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// newConversation makes a conversation with the given MCP servers and starts it.
func newConversation(t *testing.T, s *agentserver.Server, servers ...agentserver.MCPServer) *agentserver.Conversation {
	t.Helper()
	c, _, err := s.Create(t.Context(), agentserver.CreateRequest{Servers: servers})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

func names(c *agentserver.Conversation) []string {
	var all []string
	for _, tool := range c.Tools() {
		all = append(all, tool.Name)
	}
	return all
}

// eventually waits until ok holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}
