package admin

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// send answers one request without a network.
func send(h http.Handler, method, target, body string, header ...string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, target, strings.NewReader(body))
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func problemOf(t *testing.T, w *httptest.ResponseRecorder) Error {
	t.Helper()
	if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
		t.Fatalf("Content-Type = %q, body %q", ct, w.Body)
	}
	var p Error
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	if p.Status != w.Code || p.Title == "" {
		t.Errorf("problem %+v with status %d", p, w.Code)
	}
	return p
}

func TestProblems(t *testing.T) {
	long := strings.Repeat("x", maxBody+1)
	tests := []struct {
		name, method, target, body string
		status                     int
		problem                    string
	}{
		{"no such path", "GET", "/v2", "", 404, "not-found"},
		{"below the root", "GET", "/x", "", 404, "not-found"},
		{"no such method", "POST", "/v1/servers", "", 405, "method-not-allowed"},
		{"no such server", "POST", "/v1/servers/x/check", "", 404, "unknown-server"},
		{"no such conversation", "GET", "/v1/conversations/x", "", 404, "unknown-conversation"},
		{"remove an unknown one", "DELETE", "/v1/conversations/x", "", 404, "unknown-conversation"},
		{"refresh an unknown one", "POST", "/v1/conversations/x/refresh", "", 404, "unknown-conversation"},
		{"bad id", "PUT", "/v1/conversations/a%2fb", "", 400, "invalid-request"},
		{"id with a line end", "PUT", "/v1/conversations/a%0d%0ab", "", 400, "invalid-request"},
		{"id with a query", "GET", "/v1/conversations/a%3fb", "", 400, "invalid-request"},
		{"not JSON", "PUT", "/v1/conversations/x", "agentServer", 400, "invalid-request"},
		{"unknown member", "PUT", "/v1/conversations/x", `{"agent":"default"}`, 400, "invalid-request"},
		{"two values", "PUT", "/v1/conversations/x", `{}{}`, 400, "invalid-request"},
		{"unknown agent server", "PUT", "/v1/conversations/x", `{"agentServer":"http://169.254.169.254"}`, 422, "unknown-name"},
		{"too large", "PUT", "/v1/conversations/x", `{"agentServer":"` + long + `"}`, 413, "body-too-large"},
		{"bad state", "GET", "/v1/conversations?state=x", "", 400, "invalid-request"},
		{"bad limit", "GET", "/v1/conversations?limit=0", "", 400, "invalid-request"},
		{"unknown parameter", "GET", "/v1/conversations?page=2", "", 400, "invalid-request"},
	}
	h := New(newFake().deps(NewFeed()))
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := send(h, tt.method, tt.target, tt.body)
			p := problemOf(t, w)
			if w.Code != tt.status || p.Type != typePrefix+tt.problem {
				t.Errorf("%d %+v, want %d %s", w.Code, p, tt.status, tt.problem)
			}
			if len(w.Body.Bytes()) > 1024 {
				t.Errorf("the answer has %d bytes: an echo of the request?", w.Body.Len())
			}
			if tt.status == 405 && w.Header().Get("Allow") == "" {
				t.Error("no Allow header")
			}
		})
	}
}

func TestErrorsOfTheRegistry(t *testing.T) {
	tests := []struct {
		err    error
		status int
	}{
		{conversation.ErrInvalid, 400},
		{conversation.ErrForbidden, 403},
		{conversation.ErrUnavailable, 503},
		{conversation.ErrClosed, 503},
		{conversation.ErrConflict, 503},
		{t.Context().Err(), 201},
		{errSecret, 500},
	}
	for _, tt := range tests {
		f := newFake()
		f.err = tt.err
		w := send(New(f.deps(NewFeed())), "PUT", "/v1/conversations/x", "")
		if w.Code != tt.status {
			t.Errorf("%v: status %d, want %d", tt.err, w.Code, tt.status)
		}
		if strings.Contains(w.Body.String(), "s3cr3t") {
			t.Errorf("an unexpected error is shown to the caller: %s", w.Body)
		}
	}
}

func TestConversations(t *testing.T) {
	f := newFake()
	h := New(f.deps(NewFeed()))

	// An empty body registers at the default agent server; doing it again renews.
	w := send(h, "PUT", "/v1/conversations/0123456789ABCDEF0123456789ABCDEF", "")
	if w.Code != http.StatusCreated {
		t.Fatalf("PUT: %d %s", w.Code, w.Body)
	}
	w = send(h, "PUT", "/v1/conversations/01234567-89ab-cdef-0123-456789abcdef", `{"agentServer":"default","servers":["default"],"createdAt":"2026-01-02T03:04:05Z"}`)
	if w.Code != http.StatusOK {
		t.Fatalf("second PUT: %d %s", w.Code, w.Body)
	}
	want := Conversation{
		ID: "01234567-89ab-cdef-0123-456789abcdef", AgentServer: "default", State: "stale", Source: "admin",
		Servers:   []Standing{{Name: "default", Desired: 2, Applied: 1, How: "observed"}},
		CreatedAt: at("2026-01-02T03:04:05Z"),
	}
	var got Conversation
	w = send(h, "GET", "/v1/conversations/0123456789abcdef0123456789abcdef", "")
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}

	send(h, "PUT", "/v1/conversations/b", "")
	var page ConversationPage
	w = send(h, "GET", "/v1/conversations?limit=1&state=stale", "")
	if err := json.Unmarshal(w.Body.Bytes(), &page); err != nil {
		t.Fatal(err)
	}
	if len(page.Conversations) != 1 || page.Next != "more" {
		t.Errorf("page = %+v", page)
	}
	if w = send(h, "GET", "/v1/conversations?state=current", ""); !strings.Contains(w.Body.String(), `"conversations":[]`) {
		t.Errorf("an empty list is %s", w.Body)
	}

	if w = send(h, "POST", "/v1/conversations/b/refresh", ""); w.Code != http.StatusAccepted || len(f.refreshed) != 1 {
		t.Errorf("refresh: %d, asked for %v", w.Code, f.refreshed)
	}
	if w = send(h, "DELETE", "/v1/conversations/b", ""); w.Code != http.StatusNoContent || w.Body.Len() != 0 {
		t.Errorf("DELETE: %d %q", w.Code, w.Body)
	}
}

func TestServersAndControl(t *testing.T) {
	f := newFake()
	h := New(f.deps(NewFeed()))
	for _, tt := range []struct{ method, target, contains string }{
		{"GET", "/", "mcp-sidecar"},
		{"GET", "/v1/servers", `{"servers":[{"name":"default","path":"/mcp"`},
		{"POST", "/v1/servers/default/check", `"generation":2`},
		{"POST", "/v1/reload", `{"reloaded":true}`},
		{"POST", "/v1/quiesce", `{"quiescing":true}`},
	} {
		if w := send(h, tt.method, tt.target, ""); w.Code != 200 || !strings.Contains(w.Body.String(), tt.contains) {
			t.Errorf("%s %s: %d %s", tt.method, tt.target, w.Code, w.Body)
		}
	}
	if !f.quiesced {
		t.Error("not quiesced")
	}
	f.reload = &RejectedError{Problems: []string{"f.yaml:1:1: a", "f.yaml:2:1: b"}}
	w := send(h, "POST", "/v1/reload", "")
	p := problemOf(t, w)
	if diff := cmp.Diff([]string{"f.yaml:1:1: a", "f.yaml:2:1: b"}, p.Problems); w.Code != 422 || diff != "" {
		t.Errorf("reload: %d, problems (-want +got):\n%s", w.Code, diff)
	}
}

func TestToken(t *testing.T) {
	token, needed, tokenErr := "right", true, error(nil)
	d := newFake().deps(NewFeed())
	d.Token = func() (string, bool, error) { return token, needed, tokenErr }
	h := New(d)
	status := func(authorization string) int {
		return send(h, "GET", "/v1/servers", "", "Authorization", authorization).Code
	}
	for _, bad := range []string{"", "Bearer", "Bearer ", "Bearer wrong", "Basic right", "right", "Bearer right2"} {
		if got := status(bad); got != 401 {
			t.Errorf("%q: %d", bad, got)
		}
	}
	for _, good := range []string{"Bearer right", "bearer right", "BEARER  right"} {
		if got := status(good); got != 200 {
			t.Errorf("%q: %d", good, got)
		}
	}
	token = "rotated"
	if status("Bearer right") != 401 || status("Bearer rotated") != 200 {
		t.Error("a rotated token doesn't count at once")
	}
	if w := send(h, "GET", "/nothing", ""); w.Code != 401 || w.Header().Get("WWW-Authenticate") == "" {
		t.Errorf("without a token a path is told to exist or not: %d", w.Code)
	}
	token = ""
	if got := status("Bearer "); got != 401 {
		t.Errorf("an empty token file lets everybody in: %d", got)
	}
	tokenErr = errSecret
	w := send(h, "GET", "/v1/servers", "", "Authorization", "Bearer rotated")
	if w.Code != 503 || strings.Contains(w.Body.String(), "s3cr3t") {
		t.Errorf("unreadable token: %d %s", w.Code, w.Body)
	}
	needed, tokenErr = false, nil
	if got := status(""); got != 200 {
		t.Errorf("no token needed: %d", got)
	}
}

func TestRegisterListener(t *testing.T) {
	f := newFake()
	tokens := map[string]string{"default": "d", "other": "o", "none": ""}
	var log bytes.Buffer
	h := NewRegister(RegisterDeps{
		Logger: slog.New(slog.NewTextHandler(&log, nil)), Conversations: f, Tokens: func() map[string]string { return tokens },
	})
	as := func(token, method, id, body string) int {
		return send(h, method, "/v1/conversations/"+id, body, "Authorization", "Bearer "+token).Code
	}
	for _, tt := range []struct {
		name, token, method, id, body string
		want                          int
	}{
		{"register", "d", "PUT", "x", "", 201},
		{"renew", "d", "PUT", "x", `{"agentServer":"default"}`, 200},
		{"for another", "d", "PUT", "y", `{"agentServer":"other"}`, 403},
		{"another's", "o", "PUT", "x", "", 403},
		{"remove another's", "o", "DELETE", "x", "", 404},
		{"no token", "", "PUT", "y", "", 401},
		{"wrong token", "x", "DELETE", "x", "", 401},
		{"remove", "d", "DELETE", "x", "", 204},
		{"remove again", "d", "DELETE", "x", "", 404},
		{"read", "d", "GET", "x", "", 405},
	} {
		if got := as(tt.token, tt.method, tt.id, tt.body); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
	for _, target := range []string{"/", "/v1/servers", "/v1/conversations", "/v1/quiesce", "/v1/events"} {
		if w := send(h, "GET", target, "", "Authorization", "Bearer d"); w.Code != 404 {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	tokens["other"] = "d"
	if got := as("d", "PUT", "x", ""); got != 403 {
		t.Errorf("a token of two agent servers: %d", got)
	}
	if text := log.String(); strings.Count(text, "refused") != 1 || !strings.Contains(text, "see registerTokenFile") {
		t.Errorf("the log should tell once of refused tokens:\n%s", text)
	}
}
