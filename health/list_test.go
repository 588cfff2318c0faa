package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func TestListRealServers(t *testing.T) {
	s := mcpServer("1", "b", "a")
	sse := httptest.NewServer(server.NewSSEServer(s))
	defer sse.Close()
	tests := map[string]ListOptions{"sse": {URL: mustURL(t, sse.URL+"/sse"), Transport: TransportSSE}}
	for name, opts := range kinds() {
		ts := httptest.NewServer(handler(s, opts...))
		defer ts.Close()
		tests[name] = ListOptions{URL: mustURL(t, ts.URL+"/mcp")}
	}
	var hash string
	for name, o := range tests {
		t.Run(name, func(t *testing.T) {
			ts, err := List(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a", "b"}, ts.names()); diff != "" {
				t.Error(diff)
			}
			if ts.ServerName != "demo" || ts.ServerVersion != "1" || ts.ListedAt.IsZero() {
				t.Errorf("got %q %q %s", ts.ServerName, ts.ServerVersion, ts.ListedAt)
			}
			if hash == "" {
				hash = ts.Hash
			}
			if ts.Hash != hash {
				t.Errorf("hash %s, elsewhere %s", ts.Hash, hash)
			}
		})
	}
}

func TestListEndsItsSession(t *testing.T) {
	s := newStub(t)
	s.withSession("s1")
	ts := httptest.NewServer(s)
	defer ts.Close()
	if _, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL)}); err != nil {
		t.Fatal(err)
	}
	want := []string{"POST initialize", "POST notifications/initialized", "POST tools/list", "DELETE"}
	if diff := cmp.Diff(want, s.requests); diff != "" {
		t.Error(diff)
	}
	for i, h := range s.headers {
		if got := h.Get("Mcp-Session-Id"); got != "s1" && i > 0 || got != "" && i == 0 {
			t.Errorf("%s carries session %q", want[i], got)
		}
	}
}

func TestListModernServer(t *testing.T) {
	s := newStub(t)
	s.modernOnly()
	ts := httptest.NewServer(s)
	defer ts.Close()
	got, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL)})
	if err != nil {
		t.Fatal(err)
	}
	if got.ServerName != "modern" || got.ServerVersion != "3" || len(got.Tools) != 1 {
		t.Errorf("got %+v", got)
	}
	if s.got("DELETE") != 0 {
		t.Error("a session was ended where there are none")
	}
}

func TestListPages(t *testing.T) {
	serve := func(pages map[string]string) func(http.ResponseWriter, *http.Request, message) {
		return func(w http.ResponseWriter, _ *http.Request, m message) {
			cursor := "first"
			if m.Params.Cursor != nil {
				cursor = *m.Params.Cursor
			}
			if page, ok := pages[cursor]; ok {
				result(w, m, page)
				return
			}
			rpcFailure(w, http.StatusOK, m, mcp.INVALID_PARAMS, "bad cursor")
		}
	}
	tests := map[string]struct {
		pages map[string]string
		want  []string
		fails Reason
	}{
		"several":             {pages: map[string]string{"first": `{"tools":[{"name":"a"}],"nextCursor":"2"}`, "2": `{"tools":[],"nextCursor":"3"}`, "3": `{"tools":[{"name":"b"}],"nextCursor":null}`}, want: []string{"a", "b"}},
		"empty string":        {pages: map[string]string{"first": `{"tools":[{"name":"a"}],"nextCursor":""}`, "": `{"tools":[{"name":"b"}]}`}, want: []string{"a", "b"}},
		"null tools":          {pages: map[string]string{"first": `{"tools":null}`}, want: []string{}},
		"no tools":            {pages: map[string]string{"first": `{}`}, fails: ReasonInvalid},
		"other case":          {pages: map[string]string{"first": `{"Tools":[]}`}, fails: ReasonInvalid},
		"tools of no kind":    {pages: map[string]string{"first": `{"tools":{}}`}, fails: ReasonInvalid},
		"cursor of no kind":   {pages: map[string]string{"first": `{"tools":[],"nextCursor":7}`}, fails: ReasonInvalid},
		"repeated cursor":     {pages: map[string]string{"first": `{"tools":[],"nextCursor":"2"}`, "2": `{"tools":[],"nextCursor":"3"}`, "3": `{"tools":[],"nextCursor":"2"}`}, fails: ReasonRepeatedCursor},
		"duplicate name":      {pages: map[string]string{"first": `{"tools":[{"name":"a"}],"nextCursor":"2"}`, "2": `{"tools":[{"name":"a"}]}`}, fails: ReasonDuplicateName},
		"cursor that expired": {pages: map[string]string{"first": `{"tools":[{"name":"a"}],"nextCursor":"2"}`}, fails: ReasonRPCError},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStub(t)
			s.on("tools/list", serve(tt.pages))
			ts := httptest.NewServer(s)
			defer ts.Close()
			got, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL)})
			if reasonOf(err) != tt.fails {
				t.Fatalf("reason %q, want %q: %v", reasonOf(err), tt.fails, err)
			}
			if err == nil {
				if diff := cmp.Diff(tt.want, got.names()); diff != "" {
					t.Error(diff)
				}
			}
		})
	}
}

func TestListTooLarge(t *testing.T) {
	name := strings.Repeat("x", 600)
	for what, pages := range map[string]map[string]string{
		"one page":  {"": `{"tools":[{"name":"` + name + name + `"}]}`},
		"all pages": {"": `{"tools":[{"name":"a` + name + `"}],"nextCursor":"2"}`, "2": `{"tools":[{"name":"b` + name + `"}]}`},
	} {
		t.Run(what, func(t *testing.T) {
			s := newStub(t)
			s.on("tools/list", func(w http.ResponseWriter, _ *http.Request, m message) {
				cursor := ""
				if m.Params.Cursor != nil {
					cursor = *m.Params.Cursor
				}
				result(w, m, pages[cursor])
			})
			ts := httptest.NewServer(s)
			defer ts.Close()
			cfg := quick(mustURL(t, ts.URL))
			cfg.MaxListBytes = 1000
			nothing := func() {}
			p, err := newProbe(&cfg, Deps{}, NewMetrics(nil), slog.New(slog.DiscardHandler), signals{nothing, nothing, nothing}, false)
			if err != nil {
				t.Fatal(err)
			}
			defer p.close(t.Context())
			if _, err := p.connect(t.Context(), false); err != nil {
				t.Fatal(err)
			}
			if _, err := p.list(t.Context()); reasonOf(err) != ReasonTooLarge {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestListTooManyTools(t *testing.T) {
	s := newStub(t)
	s.on("tools/list", func(w http.ResponseWriter, _ *http.Request, m message) {
		next := "0"
		if m.Params.Cursor != nil {
			next = *m.Params.Cursor + "0"
		}
		result(w, m, `{"tools":[`+strings.Repeat(`{"name":"a"},`, 2000)+`{"name":"a"}],"nextCursor":"`+next+`"}`)
	})
	ts := httptest.NewServer(s)
	defer ts.Close()
	if _, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL)}); reasonOf(err) != ReasonTooMany {
		t.Errorf("got %v", err)
	}
}

func TestListOfAServerWithoutTools(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusNotFound} {
		s := newStub(t)
		s.withSession("s1")
		s.on("tools/list", func(w http.ResponseWriter, _ *http.Request, m message) {
			rpcFailure(w, status, m, mcp.METHOD_NOT_FOUND, "no such method")
		})
		ts := httptest.NewServer(s)
		got, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL)})
		if err != nil || len(got.Tools) != 0 {
			t.Errorf("status %d: got %+v, %v", status, got, err)
		}
		ts.Close()
	}
}

func TestListExplainsItself(t *testing.T) {
	plain := func(status int, mediaType, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", mediaType)
			w.WriteHeader(status)
			fmt.Fprint(w, body)
		})
	}
	tests := map[string]struct {
		handler http.Handler
		reason  Reason
		says    string
	}{
		"nothing listens": {nil, ReasonRefused, "is the server running"},
		"wrong path":      {http.NotFoundHandler(), ReasonNotReady, "check the path"},
		"starting":        {plain(http.StatusServiceUnavailable, "text/plain", "later"), ReasonNotReady, "503"},
		"a web page":      {plain(http.StatusOK, "text/html; charset=utf-8", "<html>"), ReasonNotReady, "text/html"},
		"credentials":     {plain(http.StatusUnauthorized, "text/plain", ""), ReasonUnauthorized, "Authorization"},
		"forbidden":       {plain(http.StatusForbidden, "text/plain", ""), ReasonUnauthorized, "403"},
		"no JSON":         {plain(http.StatusOK, "application/json", "{"), ReasonInvalid, "JSON-RPC"},
		"redirect":        {http.RedirectHandler("http://198.51.100.1/mcp", http.StatusTemporaryRedirect), ReasonNotReady, "final URL"},
		"hangs up":        {http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), ReasonReset, "ended before"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ts := httptest.NewServer(tt.handler)
			if tt.handler == nil {
				ts.Close()
			}
			defer ts.Close()
			_, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL+"/mcp?key=topsecret")})
			if reasonOf(err) != tt.reason {
				t.Errorf("reason %q, want %q", reasonOf(err), tt.reason)
			}
			if err == nil || !strings.Contains(err.Error(), tt.says) || !strings.Contains(err.Error(), ts.URL) {
				t.Errorf("%v doesn't say %q", err, tt.says)
			}
			if err != nil && strings.Contains(err.Error(), "topsecret") {
				t.Errorf("%v leaks the query", err)
			}
		})
	}
}

func TestListGivesUp(t *testing.T) {
	hang := make(chan struct{})
	ts := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hang }))
	defer ts.Close()
	defer close(hang)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := List(ctx, ListOptions{URL: mustURL(t, ts.URL)}); reasonOf(err) != ReasonTimeout {
		t.Errorf("got %v", err)
	}
	if _, err := List(t.Context(), ListOptions{URL: mustURL(t, "ftp://x")}); err == nil {
		t.Error("no error for a bad URL")
	}
}

func TestRedirectsWithinTheBackend(t *testing.T) {
	s := newStub(t)
	mux := http.NewServeMux()
	mux.Handle("/mcp/", s)
	mux.Handle("/mcp", http.RedirectHandler("/mcp/", http.StatusTemporaryRedirect))
	mux.Handle("/other", http.RedirectHandler("/mcp/", http.StatusFound)) // would become a GET
	ts := httptest.NewServer(mux)
	defer ts.Close()
	if got, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL+"/mcp")}); err != nil || len(got.Tools) != 1 {
		t.Errorf("got %+v, %v", got, err)
	}
	if _, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL+"/other")}); reasonOf(err) != ReasonNotReady {
		t.Errorf("got %v", err)
	}
}

func TestProbeHeaders(t *testing.T) {
	s := newStub(t)
	s.withSession("s1")
	ts := httptest.NewServer(s)
	defer ts.Close()
	n := 0
	headers := func() (http.Header, error) {
		if n++; n == 2 {
			return nil, errors.New("being written")
		}
		return http.Header{"authorization": {fmt.Sprint("Bearer ", n)}, "Mcp-Session-Id": {"forged"}, "Accept": {"x"}, "X-Empty": {}}, nil
	}
	if _, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL), Headers: headers}); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, h := range s.headers {
		got = append(got, h.Get("Authorization")+" "+h.Get("Mcp-Session-Id"))
		if h.Get("Accept") == "x" {
			t.Error("the protocol's header was overwritten")
		}
	}
	// Read anew for each request; the last good answer bridges a failure.
	if diff := cmp.Diff([]string{"Bearer 1 ", "Bearer 1 s1", "Bearer 3 s1", "Bearer 4 s1"}, got); diff != "" {
		t.Error(diff)
	}

	_, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL), Headers: func() (http.Header, error) { return nil, errors.New("no file") }})
	if reasonOf(err) != ReasonCredentials || !strings.Contains(err.Error(), "no file") {
		t.Errorf("got %v", err)
	}
}

// Nothing of the sidecar's own headers goes to another host, not even the request.
func TestForeignRedirectGetsNothing(t *testing.T) {
	foreign := newStub(t)
	other := httptest.NewServer(foreign)
	defer other.Close()
	ts := httptest.NewServer(http.RedirectHandler(other.URL, http.StatusPermanentRedirect))
	defer ts.Close()
	_, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL), Headers: func() (http.Header, error) {
		return http.Header{"X-Key": {"k"}}, nil
	}})
	if reasonOf(err) != ReasonNotReady || len(foreign.requests) != 0 {
		t.Errorf("got %v, and %v arrived elsewhere", err, foreign.requests)
	}
}

func TestAnswersAsEventStream(t *testing.T) {
	s := newStub(t)
	s.on("tools/list", func(w http.ResponseWriter, _ *http.Request, m message) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "id: 1\ndata: \n\n: comment\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n")
		fmt.Fprintf(w, "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":%s,\ndata: \"result\":{\"tools\":[{\"name\":\"big\",\"x\":9007199254740993}]}}\n\n", m.ID)
	})
	ts := httptest.NewServer(s)
	defer ts.Close()
	got, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL)})
	if err != nil {
		t.Fatal(err)
	}
	if string(got.Tools[0].Raw) != `{"name":"big","x":9007199254740993}` {
		t.Errorf("got %s", got.Tools[0].Raw)
	}
}

// TestListHidesSecrets has a server that repeats in its error what it was asked with.
func TestListHidesSecrets(t *testing.T) {
	for _, status := range []int{http.StatusOK, http.StatusBadRequest} {
		ts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_ = json.NewEncoder(w).Encode(map[string]any{"jsonrpc": "2.0", "id": 1, "error": map[string]any{
				"code": -32000, "message": "bad: " + strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ") + r.URL.RawQuery,
			}})
		}))
		defer ts.Close()
		header := func() (http.Header, error) { return http.Header{"Authorization": {"Bearer canary-header"}}, nil }
		_, err := List(t.Context(), ListOptions{URL: mustURL(t, ts.URL+"/mcp?key=canary-query"), Headers: header})
		if err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "bad: <redacted>") {
			t.Errorf("status %d: the error is %v", status, err)
		}
	}
}
