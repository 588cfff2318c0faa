package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
	"github.com/mcp-sidecar/mcp-sidecar/health"
)

const (
	readHeaderTimeout = 10 * time.Second
	callEvery         = 20 * time.Millisecond // an agent's pause between two calls
)

// agents is the agent server with its conversations, and an agent in each that calls a tool all the time.
type agents struct {
	url           string
	key           string
	conversations []*agentserver.Conversation

	server    *agentserver.Server
	http      *http.Server
	callers   sync.WaitGroup
	stop      context.CancelFunc
	refreshes atomic.Int64 // successful refresh requests

	mu       sync.Mutex
	calls    int
	failures []string
	longest  time.Duration
}

// startAgents starts the agent server, without conversations.
func startAgents(ctx context.Context, key string) (*agents, error) {
	a := &agents{key: key}
	var err error
	a.server, err = agentserver.New(agentserver.DefaultConfig(), agentserver.Deps{
		Keys: func() ([]string, error) { return []string{key}, nil },
	})
	if err != nil {
		return nil, fmt.Errorf("starting the agent server: %w", err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("starting the agent server: %w", err)
	}
	a.url = "http://" + l.Addr().String()
	a.http = &http.Server{Handler: a.countRefreshes(a.server), ReadHeaderTimeout: readHeaderTimeout}
	go func() { _ = a.http.Serve(l) }() // ends with close
	return a, nil
}

// countRefreshes counts the refresh requests that were answered with success.
func (a *agents) countRefreshes(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rec := &statusRecorder{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(rec, r)
		if r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/refresh_mcp_tools") && rec.status == http.StatusOK {
			a.refreshes.Add(1)
		}
	})
}

type statusRecorder struct {
	http.ResponseWriter

	status int
}

func (r *statusRecorder) WriteHeader(status int) {
	r.status = status
	r.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (r *statusRecorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// talk opens n conversations that reach the backend through the sidecar, and starts an agent in each. A conversation's id
// is in the URL of its MCP server: that registers it.
func (a *agents) talk(ctx context.Context, sidecar string, n int) error {
	ctx, a.stop = context.WithCancel(ctx)
	for i := range n {
		id := agentserver.ID(fmt.Sprintf("c0ffee00-0000-4000-8000-%012d", i+1))
		c, _, err := a.server.Create(ctx, agentserver.CreateRequest{ID: id, Servers: []agentserver.MCPServer{
			{Name: "travel", URL: sidecar + "/c/" + string(id) + "/mcp"},
		}})
		if err != nil {
			return fmt.Errorf("creating a conversation: %w", err)
		}
		if err := c.Start(ctx); err != nil {
			return fmt.Errorf("connecting a conversation: %w", err)
		}
		c.Append(agentserver.Event{Kind: agentserver.KindMessage, Source: "user", Text: "Plan my trip."})
		a.conversations = append(a.conversations, c)
		a.callers.Go(func() { a.call(ctx, c) })
	}
	return nil
}

// call is an agent: it calls a tool until ctx ends, and notes what it got.
func (a *agents) call(ctx context.Context, c *agentserver.Conversation) {
	tick := time.NewTicker(callEvery)
	defer tick.Stop()
	for {
		began := time.Now()
		res, err := c.CallTool(ctx, callTool, map[string]any{"amount": 10, "to": "EUR"})
		if ctx.Err() != nil {
			return
		}
		a.mu.Lock()
		a.calls++
		a.longest = max(a.longest, time.Since(began))
		switch {
		case err != nil:
			a.failures = append(a.failures, err.Error())
		case res.IsError:
			a.failures = append(a.failures, fmt.Sprint(res.Content))
		}
		a.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// ledger is what the agents noted since the last look.
type ledger struct {
	calls     int
	failures  []string
	longest   time.Duration
	refreshes int
}

// takeLedger returns the ledger and begins a new one.
func (a *agents) takeLedger() ledger {
	a.mu.Lock()
	defer a.mu.Unlock()
	l := ledger{calls: a.calls, failures: a.failures, longest: a.longest, refreshes: int(a.refreshes.Swap(0))}
	a.calls, a.failures, a.longest = 0, nil, 0
	return l
}

// outdated returns the conversations whose tools aren't exactly those of the hash.
func (a *agents) outdated(hash string) ([]string, error) {
	var ids []string
	for _, c := range a.conversations {
		var raw []json.RawMessage
		for _, t := range c.Tools() {
			raw = append(raw, t.Definition)
		}
		has, err := health.HashTools(raw, health.HashOptions{})
		if err != nil {
			return nil, fmt.Errorf("comparing a conversation's tools: %w", err)
		}
		if has.Hash != hash {
			ids = append(ids, string(c.ID()))
		}
	}
	return ids, nil
}

// close ends the agents, their conversations and the agent server.
func (a *agents) close() {
	if a.stop != nil {
		a.stop()
	}
	a.callers.Wait()
	_ = a.server.Close()
	_ = a.http.Close()
}
