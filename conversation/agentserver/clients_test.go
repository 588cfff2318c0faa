package agentserver_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

func TestClientsAddedAndClosedAtRunTime(t *testing.T) {
	first, plugin := newBackend(t, "add"), newBackend(t, "echo")
	c := newConversation(t, newServer(t, agentserver.Deps{}), first.as("first"))
	if err := c.AddClient(t.Context(), plugin.as("plugin")); err != nil {
		t.Fatal(err)
	}
	wantTools(t, c, "add", "plugin_echo")
	if err := c.AddClient(t.Context(), plugin.as("plugin")); !errors.Is(err, agentserver.ErrClientExists) {
		t.Errorf("adding it again: %v, want that it exists", err)
	}

	plugin.swap(t, "echo", "more")
	refresh(t, c)
	wantTools(t, c, "add", "plugin_echo", "plugin_more")

	plugin.take()
	first.take()
	for range 2 {
		c.CloseClient("plugin")
	}
	c.CloseClient("unheard-of")
	wantCalls(t, plugin, http.MethodDelete)
	wantTools(t, c, "add")
	refresh(t, c)
	wantCalls(t, plugin)
	wantCalls(t, first, list)
}

func TestAddedClientThatFailsIsNotKept(t *testing.T) {
	first, gone := newBackend(t, "add"), newBackend(t)
	gone.stop()
	c := newConversation(t, newServer(t, agentserver.Deps{}), first.as("first"))
	if err := c.AddClient(t.Context(), gone.as("gone")); err == nil {
		t.Error("want an error")
	}
	refresh(t, c)
	gone.start(t, "echo")
	if err := c.AddClient(t.Context(), gone.as("gone")); err != nil {
		t.Error(err)
	}
	wantTools(t, c, "add", "gone_echo")
}

func TestClientAddedBeforeStart(t *testing.T) {
	b := newBackend(t, "add")
	c, _, err := newServer(t, agentserver.Deps{}).Create(t.Context(), agentserver.CreateRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddClient(t.Context(), b.as("backend")); err != nil {
		t.Fatal(err)
	}
	wantCalls(t, b)
	refresh(t, c)
	wantTools(t, c, "add")
}

// Closing a client ends the refresh that waits for it, and isn't its failure.
func TestCloseClientDuringRefresh(t *testing.T) {
	b, other := newBackend(t, "add"), newBackend(t, "echo")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"), other.as("other"))
	entered, leave := make(chan struct{}), make(chan struct{})
	b.onRequest(func(method string, _ http.ResponseWriter) bool {
		if method == list {
			close(entered)
			<-leave
		}
		return false
	})
	done := make(chan error)
	go func() { done <- c.RefreshMCPTools(t.Context()) }()
	<-entered
	c.CloseClient("backend")
	close(leave)
	if err := <-done; err != nil {
		t.Errorf("refresh: %v", err)
	}
	wantTools(t, c, "other_echo")
}

func TestCallTool(t *testing.T) {
	b := newBackend(t, "add")
	s := newServer(t, agentserver.Deps{})
	c, _, err := s.Create(t.Context(), agentserver.CreateRequest{Servers: []agentserver.MCPServer{b.as("backend")}})
	if err != nil {
		t.Fatal(err)
	}
	result, err := c.CallTool(t.Context(), "add", nil)
	if err != nil || mcp.GetTextFromContent(result.Content[0]) != "add" {
		t.Fatalf("call: %v %v", result, err)
	}
	wantCalls(t, b, initialize, initialized, list, callTool)

	_, err = c.CallTool(t.Context(), "sub", nil)
	if !errors.Is(err, agentserver.ErrUnknownTool) || !strings.Contains(err.Error(), "offers add") {
		t.Errorf("error is %v, want that the tool is unknown and what there is", err)
	}
	if _, err := c.CallTool(t.Context(), "add", func() {}); err == nil {
		t.Error("arguments that aren't JSON: want an error")
	}
	history := c.History()
	if len(history) != 2 || history[0].Failed || !history[1].Failed {
		t.Errorf("history is %+v, want a call and a failed one", history)
	}
}

// Many calls find that the session is gone: one new session serves all of them.
func TestCallsAfterSwapShareOneHandshake(t *testing.T) {
	b := newBackend(t, "add")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	b.swap(t, "add", "sub")
	// The first request finds out that its connection is dead.
	_, _ = c.CallTool(t.Context(), "add", nil)
	b.take()
	b.swap(t, "add", "sub")
	refresh(t, c)
	b.swap(t, "add", "mul")
	_, _ = c.CallTool(t.Context(), "add", nil)
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := c.CallTool(t.Context(), "add", nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := b.count(initialize); n != 2 {
		t.Errorf("%d handshakes over two swaps, want 2", n)
	}
	wantTools(t, c, "add", "mul")
}

func TestCallToolNotSentAgainWhenItMayHaveRun(t *testing.T) {
	b := newBackend(t, "add")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	b.onRequest(func(method string, w http.ResponseWriter) bool {
		if method == callTool {
			w.WriteHeader(http.StatusBadGateway)
		}
		return method == callTool
	})
	b.take()
	if _, err := c.CallTool(t.Context(), "add", nil); err == nil {
		t.Error("want an error")
	}
	wantCalls(t, b, callTool)
	b.onRequest(nil)
	if _, err := c.CallTool(t.Context(), "add", nil); err != nil {
		t.Error(err)
	}
	wantCalls(t, b, initialize, initialized, list, http.MethodDelete, callTool)
}

// A caller that gives up says nothing about the session.
func TestCallToolTimeout(t *testing.T) {
	b := newBackend(t, "slow", "add")
	backend := b.as("backend")
	backend.Timeout = 20 * time.Millisecond
	c := newConversation(t, newServer(t, agentserver.Deps{}), backend)
	if _, err := c.CallTool(t.Context(), "slow", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error is %v, want that it took too long", err)
	}
	b.take()
	refresh(t, c)
	wantCalls(t, b, list)
}

func TestHistoryIsBounded(t *testing.T) {
	s := newServer(t, agentserver.Deps{}, func(cfg *agentserver.Config) { cfg.MaxHistory = 3 })
	c := newConversation(t, s)
	for _, text := range []string{"a", "b", "c", "d"} {
		c.Append(agentserver.Event{Kind: agentserver.KindMessage, Text: text})
	}
	history := c.History()
	if len(history) != 3 || history[0].Text != "b" || history[2].Text != "d" {
		t.Errorf("history is %+v", history)
	}
}

func TestHeadersOnEveryRequest(t *testing.T) {
	b := newBackend(t, "add")
	backend := b.as("backend")
	backend.Headers = map[string]string{"Authorization": "Bearer secret"}
	s := newServer(t, agentserver.Deps{})
	c := newConversation(t, s, backend)
	b.onRequest(func(method string, _ http.ResponseWriter) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.headers.Get("Authorization") != "Bearer secret" {
			t.Errorf("%s has no credentials", method)
		}
		if _, ok := b.headers["Idempotency-Key"]; ok {
			t.Errorf("%s has an idempotency key", method)
		}
		return false
	})
	refresh(t, c)
	if err := s.Delete(c.ID()); err != nil {
		t.Fatal(err)
	}
	if b.count(http.MethodDelete) != 1 {
		t.Error("the session wasn't ended")
	}
}

func TestErrorsHoldNoSecret(t *testing.T) {
	b := newBackend(t)
	b.stop()
	s := newServer(t, agentserver.Deps{})
	const secret = "canary"
	c, _, err := s.Create(t.Context(), agentserver.CreateRequest{Servers: []agentserver.MCPServer{
		{Name: "backend", URL: b.url() + "?key=" + secret, Headers: map[string]string{"X-Key": secret}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("error is %v", err)
	}
	_, _, err = s.Create(t.Context(), agentserver.CreateRequest{Servers: []agentserver.MCPServer{
		{Name: "backend", URL: "file:///" + secret},
	}})
	if err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("error is %v", err)
	}
}

func TestRedirectToAnotherHostIsRefused(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the other host got a request")
	}))
	t.Cleanup(other.Close)
	first := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusTemporaryRedirect))
	t.Cleanup(first.Close)
	s := newServer(t, agentserver.Deps{})
	c, _, err := s.Create(t.Context(), agentserver.CreateRequest{Servers: []agentserver.MCPServer{{Name: "backend", URL: first.URL}}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "redirects to another host") {
		t.Errorf("error is %v, want that it redirects", err)
	}
}

func TestBoundsOnWhatAServerSends(t *testing.T) {
	tests := map[string]struct {
		change func(*agentserver.Config)
		answer string
		kind   string
	}{
		"large JSON":      {answer: strings.Repeat(" ", 5000), kind: "application/json"},
		"large event":     {answer: "data: " + strings.Repeat("x", 5000), kind: "text/event-stream"},
		"many lines":      {answer: strings.Repeat("data: 1\n", 1000), kind: "text/event-stream"},
		"repeated cursor": {answer: `{"jsonrpc":"2.0","id":"x","result":{"tools":[],"nextCursor":""}}`, kind: "application/json"},
		"many tools": {
			change: func(cfg *agentserver.Config) { cfg.MaxTools = 1 },
			answer: `{"jsonrpc":"2.0","id":"x","result":{"tools":[{"name":"a"},{"name":"b"}]}}`, kind: "application/json",
		},
		"no result":      {answer: `{"jsonrpc":"2.0","id":"x"}`, kind: "application/json"},
		"same name":      {answer: `{"jsonrpc":"2.0","id":"x","result":{"tools":[{"name":"a"},{"name":"a"}]}}`, kind: "application/json"},
		"nameless":       {answer: `{"jsonrpc":"2.0","id":"x","result":{"tools":[{}]}}`, kind: "application/json"},
		"not a list":     {answer: `{"jsonrpc":"2.0","id":"x","result":{"tools":{}}}`, kind: "application/json"},
		"an HTML answer": {answer: `<html>`, kind: "text/html"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			b := startBackend(t, &backend{options: []server.StreamableHTTPOption{server.WithStateful(true), server.WithDisableStreaming(true)}}, "add")
			s := newServer(t, agentserver.Deps{}, func(cfg *agentserver.Config) {
				cfg.MaxMessage = 4000
				if test.change != nil {
					test.change(cfg)
				}
			})
			c := newConversation(t, s, b.as("backend"))
			b.onRequest(func(method string, w http.ResponseWriter) bool {
				if method == list {
					w.Header().Set("Content-Type", test.kind)
					_, _ = w.Write([]byte(test.answer))
				}
				return method == list
			})
			if err := c.RefreshMCPTools(t.Context()); err == nil {
				t.Error("want an error")
			}
			wantTools(t, c, "add")
			b.onRequest(nil)
			refresh(t, c)
		})
	}
}

func TestCloseEndsSessionsAndRefusesMore(t *testing.T) {
	b := newBackend(t, "add")
	s := newServer(t, agentserver.Deps{})
	var all []*agentserver.Conversation
	for range 3 {
		all = append(all, newConversation(t, s, b.as("backend")))
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.count(http.MethodDelete); n != 3 {
		t.Errorf("%d sessions ended, want 3", n)
	}
	if err := all[0].RefreshMCPTools(t.Context()); !errors.Is(err, agentserver.ErrClosed) {
		t.Errorf("refresh: %v, want that it is closed", err)
	}
	if err := all[0].AddClient(t.Context(), b.as("more")); !errors.Is(err, agentserver.ErrClosed) {
		t.Errorf("adding a client: %v, want that it is closed", err)
	}
	if _, _, err := s.Create(t.Context(), agentserver.CreateRequest{}); !errors.Is(err, agentserver.ErrClosed) {
		t.Errorf("create: %v, want that it is closed", err)
	}
}

func TestConfigProblemsAreReportedTogether(t *testing.T) {
	_, err := agentserver.New(agentserver.Config{}, agentserver.Deps{})
	if err == nil || !strings.Contains(err.Error(), "action") || !strings.Contains(err.Error(), "max body") {
		t.Errorf("error is %v, want every problem", err)
	}
}
