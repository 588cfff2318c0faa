package agentserver_test

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

const (
	initialize  = "initialize"
	initialized = "notifications/initialized"
	list        = "tools/list"
	callTool    = "tools/call"
)

func refresh(t *testing.T, c *agentserver.Conversation) {
	t.Helper()
	if err := c.RefreshMCPTools(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func wantTools(t *testing.T, c *agentserver.Conversation, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, names(c)); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
}

func wantCalls(t *testing.T, b *backend, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, b.take()); diff != "" {
		t.Errorf("requests to the backend (-want +got):\n%s", diff)
	}
}

func TestRefreshOfHealthySessionIsOneList(t *testing.T) {
	b := newBackend(t, "add", "echo")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	wantCalls(t, b, initialize, initialized, list)

	refresh(t, c)
	wantCalls(t, b, list)
	wantTools(t, c, "add", "echo")
}

func TestRefreshReadsAllPages(t *testing.T) {
	b := startBackend(t, &backend{paging: 2, options: []server.StreamableHTTPOption{server.WithStateful(true)}},
		"a", "b", "c", "d", "e")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	b.take()
	refresh(t, c)
	wantCalls(t, b, list, list, list)
	wantTools(t, c, "a", "b", "c", "d", "e")
}

func TestRefreshWithoutSessionsNeverInitializes(t *testing.T) {
	b := startBackend(t, &backend{options: []server.StreamableHTTPOption{server.WithStateLess(true)}}, "add")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	b.swap(t, "add", "sub")
	b.take()
	refresh(t, c)
	wantCalls(t, b, list)
	wantTools(t, c, "add", "sub")
}

// A request that the new process refuses because it doesn't know the session
// leads to one handshake and one more list, in the same call.
func TestRefreshReconnectsTerminatedSession(t *testing.T) {
	b := newBackend(t, "add", "echo")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	b.swap(t, "echo", "sub")
	b.take()
	refresh(t, c)
	wantCalls(t, b, list, initialize, initialized, list)
	wantTools(t, c, "echo", "sub")

	refresh(t, c)
	wantCalls(t, b, list)
}

func TestRefreshReconnectsOnJSONRPCError(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
		b := newBackend(t, "add")
		c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
		b.take()
		var once sync.Once
		b.onRequest(func(method string, w http.ResponseWriter) (answered bool) {
			if method == list {
				once.Do(func() {
					answered = true
					w.Header().Set("Content-Type", "application/json")
					w.WriteHeader(status)
					_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-32000,"message":"Bad Request: no valid session"}}`))
				})
			}
			return answered
		})
		refresh(t, c)
		wantCalls(t, b, list, initialize, initialized, list, http.MethodDelete)
		wantTools(t, c, "add")
	}
}

func TestRefreshReconnectsOnlyOnce(t *testing.T) {
	b := newBackend(t, "add")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	b.take()
	b.onRequest(func(method string, w http.ResponseWriter) bool {
		if method != list {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"jsonrpc":"2.0","id":1,"error":{"code":-31001,"message":"backend is away"}}`))
		return true
	})
	err := c.RefreshMCPTools(t.Context())
	rpc, ok := errors.AsType[*agentserver.RPCError](err)
	if !ok || rpc.Code != -31001 {
		t.Errorf("error is %v, want one with code -31001", err)
	}
	if n := b.count(initialize); n != 1 {
		t.Errorf("%d handshakes, want 1", n)
	}
	wantTools(t, c, "add")
}

// A session that looks up but whose connection fails isn't retried in the same
// call. The next refresh connects anew.
func TestRefreshRecoversWhenBackendIsBack(t *testing.T) {
	b := newBackend(t, "add")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	b.stop()
	for range 2 {
		err := c.RefreshMCPTools(t.Context())
		if failed, ok := errors.AsType[*agentserver.RefreshError](err); !ok || failed.Initial || len(failed.Errs) != 1 {
			t.Fatalf("error is %v, want a RefreshError with one client", err)
		}
		wantTools(t, c, "add")
	}
	b.start(t, "add", "sub")
	b.take()
	refresh(t, c)
	if n := b.count(initialize); n != 1 {
		t.Errorf("%d handshakes, want 1", n)
	}
	wantTools(t, c, "add", "sub")
}

func TestRefreshAfterHTTPError(t *testing.T) {
	b := newBackend(t, "add")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	b.take()
	b.onRequest(func(_ string, w http.ResponseWriter) bool {
		http.Error(w, `{"detail":"secret"}`, http.StatusServiceUnavailable)
		return true
	})
	err := c.RefreshMCPTools(t.Context())
	if err == nil || !strings.Contains(err.Error(), "HTTP 503") || strings.Contains(err.Error(), "secret") {
		t.Errorf("error is %v, want the status without the body", err)
	}
	wantCalls(t, b, list)
	b.onRequest(nil)
	refresh(t, c)
	wantCalls(t, b, initialize, initialized, list, http.MethodDelete)
}

func TestRefreshTriesEveryClient(t *testing.T) {
	bad, good, worse := newBackend(t, "one"), newBackend(t, "two"), newBackend(t, "three")
	c := newConversation(t, newServer(t, agentserver.Deps{}), bad.as("bad"), good.as("good"), worse.as("worse"))
	wantTools(t, c, "bad_one", "good_two", "worse_three")
	bad.stop()
	worse.stop()
	good.setTools("two", "four")
	good.take()

	err := c.RefreshMCPTools(t.Context())
	failed, ok := errors.AsType[*agentserver.RefreshError](err)
	if !ok || len(failed.Errs) != 2 {
		t.Fatalf("error is %v, want a RefreshError with two clients", err)
	}
	for _, name := range []string{`"bad"`, `"worse"`} {
		if !strings.Contains(err.Error(), name) {
			t.Errorf("error %q doesn't name %s", err, name)
		}
	}
	if slices.Contains(good.take(), initialize) {
		t.Error("the healthy client connected anew")
	}
	bad.start(t, "one")
	worse.start(t)
	refresh(t, c)
	got := names(c)
	slices.Sort(got)
	if diff := cmp.Diff([]string{"bad_one", "good_four", "good_two"}, got); diff != "" {
		t.Errorf("tools (-want +got):\n%s", diff)
	}
}

func TestClientWithoutToolsGainsSome(t *testing.T) {
	b := startBackend(t, &backend{options: []server.StreamableHTTPOption{server.WithStateful(true), server.WithDisableStreaming(true)}})
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	wantTools(t, c)
	b.setTools("add")
	refresh(t, c)
	wantTools(t, c, "add")
	b.setTools()
	refresh(t, c)
	wantTools(t, c)
}

func TestRefreshUpdatesDefinitions(t *testing.T) {
	b := startBackend(t, &backend{options: []server.StreamableHTTPOption{server.WithStateful(true), server.WithDisableStreaming(true)}}, "add")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	schema := `{"type":"object","oneOf":[{"required":["a"]}],"x-kept":9007199254740993}`
	b.mcp.SetTools(server.ServerTool{Tool: mcp.NewToolWithRawSchema("add", "adds", []byte(schema))})
	refresh(t, c)
	tools := c.Tools()
	if len(tools) != 1 || tools[0].Description != "adds" || string(tools[0].InputSchema) != schema {
		t.Errorf("tools are %+v, want the new definition whole", tools)
	}
}

func TestNotificationRefreshes(t *testing.T) {
	b := newBackend(t, "add")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	eventually(t, "the notification stream", func() bool { return b.count(http.MethodGet) > 0 })
	eventually(t, "the new tool", func() bool {
		b.setTools("add", "sub") // again and again: the stream may not be served yet
		return slices.Equal(names(c), []string{"add", "sub"})
	})
	if n := b.count(initialize); n != 1 {
		t.Errorf("%d handshakes, want 1", n)
	}
}

// While an explicit refresh lists, one because of a notification waits, and there
// are never two at once.
func TestRefreshesShareOneLock(t *testing.T) {
	b := newBackend(t, "add")
	c := newConversation(t, newServer(t, agentserver.Deps{}), b.as("backend"))
	eventually(t, "the notification stream", func() bool { return b.count(http.MethodGet) > 0 })
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	b.onRequest(func(method string, _ http.ResponseWriter) bool {
		if method == list {
			entered <- struct{}{}
			<-leave
		}
		return false
	})
	done := make(chan error, 2)
	go func() { done <- c.RefreshMCPTools(t.Context()) }()
	<-entered
	go func() { done <- c.RefreshMCPTools(t.Context()) }()
	b.setTools("add", "sub")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.RefreshMCPTools(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting refresh ended with %v, want that it was cancelled", err)
	}
	if len(entered) != 0 {
		t.Error("a second list began while the first was under way")
	}
	close(leave)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	wantTools(t, c, "add", "sub")
}

func TestRefreshStartsAConversation(t *testing.T) {
	b := newBackend(t, "add")
	s := newServer(t, agentserver.Deps{})
	c, _, err := s.Create(t.Context(), agentserver.CreateRequest{Servers: []agentserver.MCPServer{b.as("backend")}})
	if err != nil {
		t.Fatal(err)
	}
	wantCalls(t, b)
	refresh(t, c)
	wantCalls(t, b, initialize, initialized, list)
	wantTools(t, c, "add")
}

func TestStartFailsAndRecovers(t *testing.T) {
	b := newBackend(t, "add")
	b.stop()
	s := newServer(t, agentserver.Deps{})
	c, _, err := s.Create(t.Context(), agentserver.CreateRequest{Servers: []agentserver.MCPServer{b.as("backend")}})
	if err != nil {
		t.Fatal(err)
	}
	if failed, ok := errors.AsType[*agentserver.RefreshError](c.Start(t.Context())); !ok || !failed.Initial {
		t.Errorf("want an initial RefreshError, got %v", err)
	}
	b.start(t, "add")
	refresh(t, c)
	wantTools(t, c, "add")
}

func TestIDAndHistoryStay(t *testing.T) {
	b := newBackend(t, "add")
	s := newServer(t, agentserver.Deps{})
	c := newConversation(t, s, b.as("backend"))
	id := c.ID()
	c.Append(agentserver.Event{Kind: agentserver.KindMessage, Source: "user", Text: "hello"})
	if _, err := c.CallTool(t.Context(), "add", map[string]int{"a": 1}); err != nil {
		t.Fatal(err)
	}
	before := c.History()
	if len(before) != 2 || before[1].Tool != "add" || string(before[1].Arguments) != `{"a":1}` {
		t.Fatalf("history is %+v", before)
	}
	b.swap(t, "sub")
	refresh(t, c)
	if diff := cmp.Diff(before, c.History()); diff != "" {
		t.Errorf("history changed (-before +after):\n%s", diff)
	}
	if again, err := s.Conversation(id); err != nil || again != c {
		t.Errorf("conversation %s is another one: %v", id, err)
	}
}

func TestClashWithLocalTool(t *testing.T) {
	local := agentserver.LocalTool{
		Tool: agentserver.Tool{Name: "finish"},
		Call: func(context.Context, any) (*mcp.CallToolResult, error) { return mcp.NewToolResultText("local"), nil },
	}
	b := newBackend(t, "add")
	s := newServer(t, agentserver.Deps{LocalTools: []agentserver.LocalTool{local}})
	c := newConversation(t, s, b.as("backend"))
	wantTools(t, c, "finish", "add")
	b.swap(t, "finish", "sub")
	for range 2 {
		if err := c.RefreshMCPTools(t.Context()); !errors.Is(err, agentserver.ErrToolClash) {
			t.Errorf("error is %v, want a clash", err)
		}
	}
	wantTools(t, c, "finish", "add")
	result, err := c.CallTool(t.Context(), "finish", nil)
	if err != nil || mcp.GetTextFromContent(result.Content[0]) != "local" {
		t.Errorf("the local tool wasn't called: %v %v", result, err)
	}
}
