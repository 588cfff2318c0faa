package admin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/discovery"
)

const (
	hookID  = conversation.ID("7c9e6679-7425-40de-944b-e07fc1f90ae7")
	hookHex = "7c9e6679742540de944be07fc1f90ae7"
	hooks   = "/webhooks/openhands/default/"
)

// webhookHandler has the agent servers "default" and "other", of which "other"
// stands for all at example.com. named notes what they say of themselves.
func webhookHandler(t *testing.T, f *fake, log io.Writer, named *[]string) http.Handler {
	t.Helper()
	u, err := url.Parse("http://sidecar:8080")
	if err != nil {
		t.Fatal(err)
	}
	m := discovery.NewMatcher([]*url.URL{u}, map[string]string{"default": "/mcp"})
	return NewRegister(RegisterDeps{
		Logger:        slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Conversations: f, Tokens: func() map[string]string { return map[string]string{"default": "d", "other": "o"} },
		Matcher: func() *discovery.Matcher { return m },
		Named: func(by, name, key string) (conversation.Instance, error) {
			at := conversation.Instance{AgentServer: by}
			switch {
			case strings.HasSuffix(name, ".example.com"):
				at = conversation.Instance{AgentServer: "other", URL: name}
			case name != by:
				return at, errors.New("not allowed")
			}
			if at.AgentServer != by {
				return at, conversation.ErrForbidden
			}
			*named = append(*named, at.Name()+" with "+key)
			return at, nil
		},
	})
}

// description is a conversation as an agent server describes it, with much that
// isn't needed.
func description(status, mcpURL string) string {
	b, err := json.Marshal(map[string]any{
		"title": "canary-title", "stats": map[string]any{"usage": strings.Repeat("x", 200_000)},
		"id": hookHex, "execution_status": status, "created_at": "2026-08-22T12:00:00Z", "updated_at": "2026-08-22T13:00:00Z",
		"agent": map[string]any{"kind": "Agent", "mcp_config": map[string]any{"tools": map[string]any{"url": mcpURL + "?key=canary-query"}}},
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func TestConversationWebhook(t *testing.T) {
	ours := description("idle", "http://sidecar:8080/mcp")
	for name, tt := range map[string]struct {
		known   string // the agent server that has it already
		token   string
		path    string
		header  []string
		body    string
		want    int
		owner   string // then; "" if it isn't registered
		servers int    // that were registered, -1 if nothing was
	}{
		"created":            {token: "d", body: ours, want: 204, owner: "default", servers: 1},
		"renewed":            {known: "default", token: "d", body: ours, want: 204, owner: "default", servers: 1},
		"another's":          {known: "other", token: "d", body: ours, want: 403, owner: "other", servers: -1},
		"uses others":        {token: "d", body: description("idle", "http://elsewhere/mcp"), want: 204, servers: -1},
		"uses others, known": {known: "default", token: "d", body: description("idle", "http://elsewhere/mcp"), want: 204, owner: "default"},
		"deleted":            {known: "default", token: "d", body: description("deleting", "http://sidecar:8080/mcp"), want: 204, servers: -1},
		"deleted, unknown":   {token: "d", body: description("deleting", "http://sidecar:8080/mcp"), want: 204, servers: -1},
		"deletes another's":  {known: "other", token: "d", body: description("deleting", "http://sidecar:8080/mcp"), want: 204, owner: "other", servers: -1},
		"without a token":    {body: ours, want: 401, servers: -1},
		"the wrong token":    {token: "x", body: ours, want: 401, servers: -1},
		"another's token":    {token: "o", body: ours, want: 403, servers: -1},
		"another's path":     {token: "d", path: "/webhooks/openhands/other/conversations", body: ours, want: 403, servers: -1},
		"no JSON":            {token: "d", body: "canary-body", want: 400, servers: -1},
		"no id":              {token: "d", body: `{"id":"../canary-body"}`, want: 400, servers: -1},
		"cut short":          {token: "d", body: ours[:1000], want: 400, servers: -1},
		"too large":          {token: "d", body: `{"title":"` + strings.Repeat("x", maxWebhook) + `"}`, want: 413, servers: -1},
		"names itself":       {token: "d", header: []string{headerAgentServer, "default"}, body: ours, want: 204, owner: "default", servers: 1},
		"names another":      {token: "d", header: []string{headerAgentServer, "https://a.example.com"}, body: ours, want: 403, servers: -1},
		"names no other":     {token: "d", header: []string{headerAgentServer, "https://a.evil.com"}, body: ours, want: 422, servers: -1},
		"one of many": {
			token: "o", path: "/webhooks/openhands/other/conversations", header: []string{headerAgentServer, "https://a.example.com"},
			body: ours, want: 204, owner: "other https://a.example.com", servers: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f, log, named := newFake(), &bytes.Buffer{}, []string(nil)
			h := webhookHandler(t, f, log, &named)
			if tt.known != "" {
				f.put(hookID, tt.known)
			}
			if tt.path == "" {
				tt.path = hooks + "conversations"
			}
			header := append([]string{"Authorization", "Bearer " + tt.token, headerAgentKey, "canary-key"}, tt.header...)
			w := send(h, "POST", tt.path, tt.body, header...)
			if w.Code != tt.want {
				t.Errorf("status %d %s, want %d", w.Code, w.Body, tt.want)
			}
			owner := ""
			if v, err := f.Get(hookID); err == nil {
				owner = v.At().Name()
			}
			if owner != tt.owner {
				t.Errorf("it is at %q, want %q", owner, tt.owner)
			}
			servers := -1
			for _, r := range f.registered {
				servers = len(r.Servers)
				want := time.Date(2026, 8, 22, 13, 0, 0, 0, time.UTC)
				if !r.LastActive.Equal(want) || r.Source != conversation.SourceWebhook || r.By == "" {
					t.Errorf("registered as %+v", r)
				}
			}
			if servers != tt.servers {
				t.Errorf("%d servers registered, want %d", servers, tt.servers)
			}
			if (len(named) > 0) != (tt.header != nil && tt.want == 204) {
				t.Errorf("noted of itself: %q", named)
			}
			if text := log.String() + w.Body.String(); strings.Contains(text, "canary") {
				t.Errorf("tells too much: %s", text)
			}
		})
	}
}

func TestEventsWebhook(t *testing.T) {
	state := func(id, mcpURL string) string {
		return `[{"kind":"MessageEvent","text":"canary-text"},{"kind":"ConversationStateUpdateEvent","key":"full_state","value":` +
			strings.Replace(description("idle", mcpURL), hookHex, id, 1) + `}]`
	}
	for name, tt := range map[string]struct {
		known, id, body string
		want            int
		owner           string
		lives           bool
	}{
		"of a known one":            {known: "default", body: `[{"kind":"MessageEvent"}]`, want: 204, owner: "default", lives: true},
		"of a known one, malformed": {known: "default", body: `canary-text`, want: 204, owner: "default", lives: true},
		"of another's":              {known: "other", body: `[{}]`, want: 204, owner: "other"},
		"of another's, with state":  {known: "other", body: state(hookHex, "http://sidecar:8080/mcp"), want: 204, owner: "other"},
		"of an unknown one":         {body: `[{"kind":"MessageEvent"}]`, want: 204},
		"with its state":            {body: state(hookHex, "http://sidecar:8080/mcp"), want: 204, owner: "default", lives: true},
		"with a state of others":    {body: state(hookHex, "http://elsewhere/mcp"), want: 204},
		"with another's state":      {body: state("x", "http://sidecar:8080/mcp"), want: 204},
		"malformed":                 {body: `[{"canary-text`, want: 204},
		"large":                     {body: `[{"text":"` + strings.Repeat("x", maxWebhook) + `"}]`, want: 204},
		"with a bad id":             {id: "a%2fb", body: `[]`, want: 400},
	} {
		t.Run(name, func(t *testing.T) {
			f, log, named := newFake(), &bytes.Buffer{}, []string(nil)
			h := webhookHandler(t, f, log, &named)
			if tt.known != "" {
				f.put(hookID, tt.known)
			}
			if tt.id == "" {
				tt.id = hookHex
			}
			w := send(h, "POST", hooks+"events/"+tt.id, tt.body, "Authorization", "Bearer d", headerAgentKey, "canary-key")
			if w.Code != tt.want {
				t.Errorf("status %d %s, want %d", w.Code, w.Body, tt.want)
			}
			v, _ := f.Get(hookID)
			if v.AgentServer != tt.owner || len(f.registered) > 0 != tt.lives || len(named) > 0 {
				t.Errorf("it is at %q, want %q; registered %+v, noted %q", v.AgentServer, tt.owner, f.registered, named)
			}
			if text := log.String() + w.Body.String(); strings.Contains(text, "canary") {
				t.Errorf("tells too much: %s", text)
			}
		})
	}
	w := send(webhookHandler(t, newFake(), io.Discard, new([]string)), "POST", hooks+"events/x", "[]", "Authorization", "Bearer o")
	if w.Code != 403 {
		t.Errorf("another's token: %d", w.Code)
	}
}

// TestLargeWebhookIsReadWhole keeps the connection, so that the agent server
// doesn't send it again.
func TestLargeWebhookIsReadWhole(t *testing.T) {
	f := newFake()
	f.put(hookID, "default")
	srv := httptest.NewServer(webhookHandler(t, f, io.Discard, new([]string)))
	defer srv.Close()
	for range 2 {
		body := io.MultiReader(strings.NewReader(`[`), io.LimitReader(spaces{}, 20<<20), strings.NewReader(`]`))
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL+hooks+"events/"+hookHex, body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer d")
		resp, err := srv.Client().Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusNoContent {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
}

type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}

// TestOneOfMany: an agent server of a pattern must say which one it is, or let
// the requests of its conversations say so.
func TestOneOfMany(t *testing.T) {
	f := newFake()
	f.err = fmt.Errorf("registering: %w", &conversation.UnlocatedError{AgentServer: "other"})
	h := webhookHandler(t, f, io.Discard, new([]string))
	w := send(h, "POST", "/webhooks/openhands/other/conversations", description("idle", "http://sidecar:8080/mcp"), "Authorization", "Bearer o")
	if w.Code != 204 {
		t.Errorf("webhook: %d %s", w.Code, w.Body)
	}
	w = send(h, "PUT", "/v1/conversations/x", "", "Authorization", "Bearer o")
	if p := problemOf(t, w); p.Status != 422 || !strings.Contains(p.Detail, "URL") {
		t.Errorf("%+v", p)
	}
}
