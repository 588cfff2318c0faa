//go:build unix && replicas

package replicas

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

// agents is an agent server that notes what its conversations have after each refresh.
type agents struct {
	name string
	url  string

	server *agentserver.Server
	delay  atomic.Int64 // nanoseconds that a refresh takes longer

	mu        sync.Mutex
	refreshes map[string][]string // the tools after each successful refresh, by conversation
	failed    int
}

func startAgents(t *testing.T, name string) *agents {
	t.Helper()
	server, err := agentserver.New(agentserver.DefaultConfig(), agentserver.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	a := &agents{name: name, server: server, refreshes: map[string][]string{}}
	listener := httptest.NewServer(http.HandlerFunc(a.serve))
	a.url = listener.URL
	t.Cleanup(func() { _ = server.Close() })
	t.Cleanup(listener.Close)
	return a
}

func (a *agents) serve(w http.ResponseWriter, r *http.Request) {
	path, isRefresh := strings.CutSuffix(r.URL.Path, "/refresh_mcp_tools")
	if !isRefresh || r.Method != http.MethodPost {
		a.server.ServeHTTP(w, r)
		return
	}
	id := path[strings.LastIndexByte(path, '/')+1:]
	time.Sleep(time.Duration(a.delay.Load()))
	answer := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	a.server.ServeHTTP(answer, r)
	parsed, err := agentserver.ParseID(id)
	if err != nil {
		return
	}
	tools := "?"
	if c, err := a.server.Conversation(parsed); err == nil {
		tools = toolsOf(c)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if answer.status != http.StatusOK {
		a.failed++
		return
	}
	a.refreshes[string(parsed)] = append(a.refreshes[string(parsed)], tools)
}

type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// toolsOf names the tools of a conversation, in order.
func toolsOf(c *agentserver.Conversation) string {
	var names []string
	for _, tool := range c.Tools() {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

// take returns the refreshes so far and begins anew.
func (a *agents) take() (refreshes map[string][]string, failed int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	refreshes, failed = a.refreshes, a.failed
	a.refreshes, a.failed = map[string][]string{}, 0
	return refreshes, failed
}

// count returns how many refreshes succeeded.
func (a *agents) count() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := 0
	for _, all := range a.refreshes {
		n += len(all)
	}
	return n
}

// talk is a conversation whose agent calls a tool again and again.
type talk struct {
	*agentserver.Conversation

	agents *agents
	calls  atomic.Int64
	mu     sync.Mutex
	errs   []string
}

// converse starts a conversation.
func (a *agents) converse(t *testing.T, id, url string) *talk {
	t.Helper()
	c, _, err := a.server.Create(t.Context(), agentserver.CreateRequest{ID: agentserver.ID(id), Servers: []agentserver.MCPServer{{
		Name: "backend", URL: url, Headers: map[string]string{"X-Sidecar-Agent-Server": a.name},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return &talk{Conversation: c, agents: a}
}

// run calls a tool at an interval until ctx ends.
func (k *talk) run(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		began := time.Now()
		result, err := k.CallTool(context.WithoutCancel(ctx), "balance", nil)
		k.calls.Add(1)
		if err == nil && result.IsError {
			err = fmt.Errorf("the result is an error: %v", result.Content)
		}
		if err != nil {
			k.mu.Lock()
			k.errs = append(k.errs, fmt.Sprintf("at %s after %s: %v", began.Format("15:04:05.000"), time.Since(began).Round(time.Millisecond), err))
			k.mu.Unlock()
		}
	}
}
