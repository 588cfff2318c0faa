package agentserver_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

const unknownID = "12345678-1234-4234-8234-123456789abc"

// do sends a request to the handler and returns the status and the body.
func do(t *testing.T, h http.Handler, method, path, body string, headers ...string) (int, string) {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Code, strings.TrimSpace(w.Body.String())
}

func wantAnswer(t *testing.T, h http.Handler, method, path, body string, status int, want string) {
	t.Helper()
	gotStatus, got := do(t, h, method, path, body)
	if gotStatus != status || got != want {
		t.Errorf("%s %s: %d %s\nwant %d %s", method, path, gotStatus, got, status, want)
	}
}

func TestErrorShapes(t *testing.T) {
	s := newServer(t, agentserver.Deps{})
	const (
		base     = "/api/conversations/"
		notFound = `{"detail":"Not Found"}`
	)
	wantAnswer(t, s, "POST", base+unknownID+"/refresh_mcp_tools", "", 404, notFound)
	wantAnswer(t, s, "POST", base+unknownID+"/no_such_action", "", 404, notFound)
	wantAnswer(t, s, "GET", base+unknownID, "", 404, notFound)
	wantAnswer(t, s, "GET", "/nowhere", "", 404, notFound)
	wantAnswer(t, s, "POST", base+unknownID+"/events", "{}", 404, `{"detail":"Conversation not found: `+unknownID+`"}`)
	wantAnswer(t, s, "DELETE", base+unknownID, "", 400, `{"detail":"Bad Request"}`)
	wantAnswer(t, s, "GET", base+unknownID+"/refresh_mcp_tools", "", 405, `{"detail":"Method Not Allowed"}`)
	const badID = `{"detail":[{"type":"uuid_parsing","loc":["path","conversation_id"],"msg":"Input should be a valid UUID"}]}`
	wantAnswer(t, s, "POST", base+"x/refresh_mcp_tools", "", 422, badID)
	wantAnswer(t, s, "GET", base+"..%2f..", "", 422, badID)
	wantAnswer(t, s, "POST", "/api/conversations", "{}", 422, `{"detail":[{"type":"missing","loc":["body","agent"],"msg":"Field required"}]}`)
	wantAnswer(t, s, "POST", "/api/conversations", "{", 422, `{"detail":[{"type":"json_invalid","loc":["body"],"msg":"JSON decode error"}]}`)
	wantAnswer(t, s, "GET", "/health", "", 200, `{"status":"ok"}`)
	wantAnswer(t, s, "GET", "/alive", "", 200, `{"status":"ok"}`)
	wantAnswer(t, s, "GET", "/ready", "", 200, `{"status":"ready"}`)
	if status, _ := do(t, s, "POST", "/api/conversations", strings.Repeat(" ", 2<<20)); status != 413 {
		t.Errorf("a large body: %d, want 413", status)
	}
}

func TestAuthentication(t *testing.T) {
	keys := []string{"one", "two"}
	var failing error
	s := newServer(t, agentserver.Deps{Keys: func() ([]string, error) { return keys, failing }})
	status := func(path string, headers ...string) int {
		t.Helper()
		code, body := do(t, s, "GET", path, "", headers...)
		if code == 401 && body != `{"detail":"Unauthorized"}` {
			t.Errorf("body of a 401 is %s", body)
		}
		return code
	}
	const count = "/api/conversations/count"
	for _, test := range []struct {
		key  string
		want int
	}{{"", 401}, {"one", 200}, {"two", 200}, {"on", 401}, {"one ", 401}} {
		if got := status(count, "X-Session-API-Key", test.key); got != test.want {
			t.Errorf("key %q: %d, want %d", test.key, got, test.want)
		}
	}
	for _, path := range []string{"/health", "/alive", "/ready", "/server_info"} {
		if got := status(path); got != 200 {
			t.Errorf("%s without a key: %d, want 200", path, got)
		}
	}
	if got := status("/api/nowhere"); got != 404 {
		t.Errorf("unknown path without a key: %d, want 404", got)
	}
	if got := status("/api/conversations/x/refresh_mcp_tools"); got != 405 {
		t.Errorf("GET of the action without a key: %d, want 405", got)
	}
	if got, _ := do(t, s, "POST", "/api/conversations/x/refresh_mcp_tools", ""); got != 401 {
		t.Errorf("bad id without a key: %d, want 401", got)
	}

	keys = []string{"three"}
	if got := status(count, "X-Session-API-Key", "one"); got != 401 {
		t.Errorf("key that was taken away: %d, want 401", got)
	}
	failing = errors.New("cannot read")
	if got := status(count, "X-Session-API-Key", "three"); got != 500 {
		t.Errorf("keys that can't be read: %d, want 500", got)
	}
	keys, failing = nil, nil
	if got := status(count); got != 200 {
		t.Errorf("no keys: %d, want 200", got)
	}
}

func TestCreateOverHTTP(t *testing.T) {
	b := newBackend(t, "add")
	s := newServer(t, agentserver.Deps{})
	body := fmt.Sprintf(`{
		"conversation_id": %q, "workspace": {"working_dir": "/tmp"},
		"agent": {"kind": "Agent", "llm": {"model": "m"}, "mcp_config": {
			"backend": {"transport": "streamable-http", "url": %q, "headers": {"Authorization": "Bearer secret"}, "timeout": 1.5},
			"off": {"url": "http://127.0.0.1:1/mcp", "enabled": false}}}}`,
		strings.ToUpper(strings.ReplaceAll(unknownID, "-", "")), b.url()+"?a=b")
	status, first := do(t, s, "POST", "/api/conversations", body)
	if status != 201 {
		t.Fatalf("create: %d %s", status, first)
	}
	if strings.Contains(first, "secret") {
		t.Error("a header's value is shown")
	}
	var info agentserver.Info
	if err := json.Unmarshal([]byte(first), &info); err != nil {
		t.Fatal(err)
	}
	servers := info.Servers()
	if string(info.ID) != unknownID || len(servers) != 1 || servers[0].URL != b.url()+"?a=b" {
		t.Errorf("info is %+v", info)
	}
	if status, again := do(t, s, "POST", "/api/conversations", body); status != 200 || again != first {
		t.Errorf("create again: %d %s", status, again)
	}
	for _, id := range []string{unknownID, strings.ReplaceAll(unknownID, "-", "")} {
		if status, got := do(t, s, "GET", "/api/conversations/"+id, ""); status != 200 || got != first {
			t.Errorf("get %s: %d %s", id, status, got)
		}
	}
	wantCalls(t, b)
	wantAnswer(t, s, "POST", "/api/conversations/"+unknownID+"/refresh_mcp_tools", "", 200, `{"success":true}`)
	wantCalls(t, b, initialize, initialized, list)
	status, tools := do(t, s, "GET", "/api/conversations/"+unknownID+"/tools", "")
	if status != 200 || !strings.Contains(tools, `"name":"add","server":"backend"`) {
		t.Errorf("tools: %d %s", status, tools)
	}
	wantAnswer(t, s, "GET", "/api/conversations/count", "", 200, "1")
	wantAnswer(t, s, "DELETE", "/api/conversations/"+unknownID, "", 200, `{"success":true}`)
	wantCalls(t, b, http.MethodDelete)
	wantAnswer(t, s, "GET", "/api/conversations/count", "", 200, "0")
}

func TestCreateRefuses(t *testing.T) {
	s := newServer(t, agentserver.Deps{}, func(cfg *agentserver.Config) { cfg.MaxConversations = 1 })
	for name, config := range map[string]string{
		"unknown key":       `{"a": {"url": "http://127.0.0.1/mcp", "type": "http"}}`,
		"other transport":   `{"a": {"url": "http://127.0.0.1/mcp", "transport": "stdio"}}`,
		"no URL":            `{"a": {}}`,
		"other scheme":      `{"a": {"url": "file:///canary"}}`,
		"wrong type":        `{"a": {"url": 1}}`,
		"not an object":     `[]`,
		"negative timeout":  `{"a": {"url": "http://127.0.0.1/mcp", "timeout": -1}}`,
		"name without text": `{"": {"url": "http://127.0.0.1/mcp"}}`,
	} {
		status, body := do(t, s, "POST", "/api/conversations", `{"agent": {"mcp_config": `+config+`}}`)
		if status != 422 || !strings.HasPrefix(body, `{"detail":[{`) || strings.Contains(body, "canary") {
			t.Errorf("%s: %d %s, want 422", name, status, body)
		}
	}
	if status, _ := do(t, s, "POST", "/api/conversations", `{"agent":{},"conversation_id":"x"}`); status != 422 {
		t.Errorf("bad id: %d, want 422", status)
	}
	if status, _ := do(t, s, "POST", "/api/conversations", `{"agent":{}}`); status != 201 {
		t.Errorf("%d, want 201", status)
	}
	wantAnswer(t, s, "POST", "/api/conversations", `{"agent":{}}`, 503,
		`{"detail":"Internal Server Error","exception":"503: too many conversations"}`)
}

func TestFailedRefreshOverHTTP(t *testing.T) {
	one, two := newBackend(t, "a"), newBackend(t, "b")
	var logged strings.Builder
	s := newServer(t, agentserver.Deps{Logger: slog.New(slog.NewTextHandler(&logged, nil))})
	single := newConversation(t, s, one.as("one"))
	double := newConversation(t, s, one.as("one"), two.as("two"))
	one.stop()
	two.stop()
	wantAnswer(t, s, "POST", "/api/conversations/"+string(single.ID())+"/refresh_mcp_tools", "", 500,
		`{"detail":"Internal Server Error","exception":"Failed to refresh MCP tools (1 sub-exception)"}`)
	wantAnswer(t, s, "POST", "/api/conversations/"+string(double.ID())+"/refresh_mcp_tools", "", 500,
		`{"detail":"Internal Server Error","exception":"Failed to refresh MCP tools (2 sub-exceptions)"}`)
	if !strings.Contains(logged.String(), "connection refused") {
		t.Errorf("the log doesn't say why: %s", logged.String())
	}
	body := fmt.Sprintf(`{"conversation_id":%q,"agent":{"mcp_config":{"one":{"url":%q}}},"initial_message":{"role":"user","content":[{"type":"text","text":"hi"}]}}`, unknownID, one.url())
	wantAnswer(t, s, "POST", "/api/conversations", body, 500,
		`{"detail":"Internal Server Error","exception":"MCP Connection Failure"}`)
	one.start(t, "a")
	wantAnswer(t, s, "POST", "/api/conversations/"+unknownID+"/events", `{"role":"user","content":[{"type":"text","text":"again"}]}`, 200, `{"success":true}`)
	_, events := do(t, s, "GET", "/api/conversations/"+unknownID+"/events/search?limit=1", "")
	if !strings.Contains(events, `"text":"hi"`) || strings.Contains(events, "again") || strings.Contains(events, `"next_page_id":null`) {
		t.Errorf("first page of events is %s", events)
	}
	_ = s.Close()
	wantAnswer(t, s, "POST", "/api/conversations", `{"agent":{}}`, 500,
		`{"detail":"Internal Server Error","exception":"inactive_service"}`)
	if status, _ := do(t, s, "GET", "/ready", ""); status != 503 {
		t.Errorf("ready after close: %d, want 503", status)
	}
}

func TestActions(t *testing.T) {
	b := newBackend(t, "add")
	for _, action := range []agentserver.Action{agentserver.ActionNone, agentserver.ActionReconnect} {
		s := newServer(t, agentserver.Deps{}, func(cfg *agentserver.Config) { cfg.Action = action })
		c := newConversation(t, s, b.as("backend"))
		path := "/api/conversations/" + string(c.ID())
		for _, method := range []string{"GET", "POST"} {
			wantAnswer(t, s, method, path+"/refresh_mcp_tools", "", 404, `{"detail":"Not Found"}`)
		}
		if action == agentserver.ActionNone {
			wantAnswer(t, s, "POST", path+"/reconnect_mcp", "", 404, `{"detail":"Not Found"}`)
			continue
		}
		b.take()
		wantAnswer(t, s, "POST", path+"/reconnect_mcp", "", 200,
			`{"servers":[{"server":"backend","tools":["add"],"connected":true,"reconnected":true,"error":null}]}`)
		wantCalls(t, b, initialize, initialized, list, http.MethodDelete)
		b.stop()
		status, body := do(t, s, "POST", path+"/reconnect_mcp", "")
		if status != 200 || !strings.Contains(body, `"connected":false,"reconnected":false,"error":"`) {
			t.Errorf("%d %s, want 200 and the client's error", status, body)
		}
		b.start(t, "add")
	}
}

func TestSearch(t *testing.T) {
	s := newServer(t, agentserver.Deps{})
	var created []string
	for range 5 {
		c := newConversation(t, s)
		created = append(created, string(c.ID()))
	}
	type result struct {
		Items      []agentserver.Info `json:"items"`
		NextPageID *string            `json:"next_page_id"`
	}
	search := func(query string) result {
		t.Helper()
		status, body := do(t, s, "GET", "/api/conversations/search?"+query, "")
		var r result
		if err := json.Unmarshal([]byte(body), &r); status != 200 || err != nil {
			t.Fatalf("search %s: %d %s", query, status, body)
		}
		return r
	}
	ids := func(r result) []string {
		var all []string
		for _, item := range r.Items {
			all = append(all, string(item.ID))
		}
		return all
	}
	if diff := cmp.Diff(created, ids(search("sort_order=CREATED_AT"))); diff != "" {
		t.Errorf("ascending (-want +got):\n%s", diff)
	}
	slices.Reverse(created)
	if diff := cmp.Diff(created, ids(search(""))); diff != "" {
		t.Errorf("default order (-want +got):\n%s", diff)
	}

	page := search("limit=2")
	if diff := cmp.Diff(created[:2], ids(page)); diff != "" || page.NextPageID == nil {
		t.Fatalf("first page (-want +got):\n%s", diff)
	}
	if want := strings.ReplaceAll(created[2], "-", ""); *page.NextPageID != want {
		t.Errorf("next page is %s, want %s", *page.NextPageID, want)
	}
	page = search("limit=3&page_id=" + *page.NextPageID)
	if diff := cmp.Diff(created[2:], ids(page)); diff != "" || page.NextPageID != nil {
		t.Errorf("last page (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(created[:1], ids(search("limit=1&page_id="+unknownID))); diff != "" {
		t.Errorf("unknown page begins at the first (-want +got):\n%s", diff)
	}

	oldest := created[len(created)-1]
	c, err := s.Conversation(agentserver.ID(oldest))
	if err != nil {
		t.Fatal(err)
	}
	c.Append(agentserver.Event{Kind: agentserver.KindMessage})
	if got := ids(search("sort_order=UPDATED_AT_DESC&limit=1")); got[0] != oldest {
		t.Errorf("last updated is %s, want %s", got[0], oldest)
	}

	for query, want := range map[string]int{
		"limit=0": 422, "limit=-1": 422, "limit=x": 422, "limit=101": 500, "limit=100": 200, "sort_order=SIDEWAYS": 422,
	} {
		if got, _ := do(t, s, "GET", "/api/conversations/search?"+query, ""); got != want {
			t.Errorf("%s: %d, want %d", query, got, want)
		}
	}
	if empty := search("page_id=x&limit=100"); len(empty.Items) != 5 {
		t.Errorf("page_id that no conversation can have: %d items, want all", len(empty.Items))
	}
	none := newServer(t, agentserver.Deps{})
	wantAnswer(t, none, "GET", "/api/conversations/search", "", 200, `{"items":[],"next_page_id":null}`)
}

func TestServerInfo(t *testing.T) {
	s := newServer(t, agentserver.Deps{}, func(cfg *agentserver.Config) { cfg.Version = "1.2.3" })
	_, body := do(t, s, "GET", "/server_info", "")
	var info struct {
		Uptime   *int   `json:"uptime"`
		IdleTime *int   `json:"idle_time"`
		Version  string `json:"version"`
	}
	if err := json.Unmarshal([]byte(body), &info); err != nil || info.Uptime == nil || info.IdleTime == nil || info.Version != "1.2.3" {
		t.Errorf("server info is %s: %v", body, err)
	}
}
