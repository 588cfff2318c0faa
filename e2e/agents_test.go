//go:build unix

package e2e

import (
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// agents is an agent server on an address of its own. It counts what it is asked
// to refresh, and can be away.
type agents struct {
	t      *testing.T
	addr   string
	server *agentserver.Server
	http   *http.Server
	key    atomic.Pointer[string] // that it accepts; nil: none is wanted
	// meddle may answer a refresh of a conversation in the agent server's place: then it
	// returns true.
	meddle atomic.Pointer[func(w http.ResponseWriter, r *http.Request, id string) bool]

	mu        sync.Mutex
	refreshes map[string][]int // status of each answer, by conversation
}

// startAgents starts an agent server.
func startAgents(t *testing.T) *agents {
	t.Helper()
	a := &agents{t: t, addr: proc.ReserveAddr(t), refreshes: map[string][]int{}}
	cfg := agentserver.DefaultConfig()
	cfg.RefreshTimeout = 10 * time.Second
	server, err := agentserver.New(cfg, agentserver.Deps{Keys: func() ([]string, error) {
		if key := a.key.Load(); key != nil {
			return []string{*key}, nil
		}
		return nil, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	a.server = server
	t.Cleanup(func() { _ = server.Close() })
	a.up()
	t.Cleanup(a.down)
	return a
}

func (a *agents) url() string { return "http://" + a.addr }

// up lets the agent server be reached.
func (a *agents) up() {
	a.t.Helper()
	listener, err := net.Listen("tcp", a.addr)
	if err != nil {
		a.t.Fatal(err)
	}
	a.http = &http.Server{Handler: http.HandlerFunc(a.serve), ReadHeaderTimeout: time.Minute}
	go func(s *http.Server) { _ = s.Serve(listener) }(a.http)
}

// down makes it unreachable: connections are refused. Its conversations stay.
func (a *agents) down() { _ = a.http.Close() }

func (a *agents) serve(w http.ResponseWriter, r *http.Request) {
	path, isRefresh := strings.CutSuffix(r.URL.Path, "/refresh_mcp_tools")
	if !isRefresh || r.Method != http.MethodPost {
		a.server.ServeHTTP(w, r)
		return
	}
	id := path[strings.LastIndexByte(path, '/')+1:]
	if parsed, err := agentserver.ParseID(id); err == nil {
		id = string(parsed)
	}
	answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	defer func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.refreshes[id] = append(a.refreshes[id], answer.status)
	}()
	if f := a.meddle.Load(); f != nil && (*f)(answer, r, id) {
		return
	}
	a.server.ServeHTTP(answer, r)
}

// statusWriter keeps the status of an answer.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// intercept sets meddle; nil ends it.
func (a *agents) intercept(f func(w http.ResponseWriter, r *http.Request, id string) bool) {
	if f == nil {
		a.meddle.Store(nil)
		return
	}
	a.meddle.Store(&f)
}

// want sets the key that the agent server accepts.
func (a *agents) want(key string) { a.key.Store(&key) }

// asked returns the statuses of the answers to refreshes of a conversation.
func (a *agents) asked(id string) []int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return append([]int(nil), a.refreshes[id]...)
}

// forget begins to count anew.
func (a *agents) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.refreshes)
}

// refreshed returns how many refreshes of a conversation succeeded.
func (a *agents) refreshed(id string) int {
	n := 0
	for _, status := range a.asked(id) {
		if status == http.StatusOK {
			n++
		}
	}
	return n
}

// id returns a conversation id for a small number.
func id(n int) string { return fmt.Sprintf("c0ffee00-0000-4000-8000-%012d", n) }

// converse creates a conversation whose MCP server is at url, and connects it.
func (a *agents) converse(id, url string, headers map[string]string) *agentserver.Conversation {
	a.t.Helper()
	c, _, err := a.server.Create(a.t.Context(), agentserver.CreateRequest{
		ID: agentserver.ID(id), Servers: []agentserver.MCPServer{{Name: "backend", URL: url, Headers: headers}},
	})
	if err != nil {
		a.t.Fatal(err)
	}
	if err := c.Start(a.t.Context()); err != nil {
		a.t.Fatal(err)
	}
	return c
}

// offers tells whether a conversation offers exactly these tools.
func offers(c *agentserver.Conversation, want toolset) bool {
	tools := c.Tools()
	for _, tool := range tools {
		if _, ok := want[tool.Name]; !ok {
			return false
		}
	}
	return len(tools) == len(want)
}
