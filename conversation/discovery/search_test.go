package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

// httpClient is a Client without any rules.
type httpClient struct{ base string }

func (c httpClient) Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.base+"/"+path+"?"+query.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return nil, errors.New("not reachable")
	}
	if resp.StatusCode != http.StatusOK {
		resp.Body.Close()
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	return resp.Body, nil
}

// fakeServer is an agent server in memory that pages as the reference does.
type fakeServer struct {
	mu       sync.Mutex
	items    []string // JSON of conversations, the last changed first
	ids      []string
	requests []string
	before   func(from string) // is called before each answer
	fail     error
}

func info(id string, updated time.Time, urls ...string) string {
	config := map[string]any{}
	for i, u := range urls {
		config[strconv.Itoa(i)] = map[string]any{"url": u}
	}
	b, err := json.Marshal(map[string]any{
		"id": id, "execution_status": "idle", "updated_at": updated, "created_at": updated,
		"agent": map[string]any{"kind": "Agent", "mcp_config": config},
	})
	if err != nil {
		panic(err)
	}
	return string(b)
}

// put adds a conversation, or moves it to the front.
func (f *fakeServer) put(id string, updated time.Time, urls ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.remove(id)
	f.ids = slices.Insert(f.ids, 0, id)
	f.items = slices.Insert(f.items, 0, info(id, updated, urls...))
}

func (f *fakeServer) remove(id string) {
	if i := slices.Index(f.ids, id); i >= 0 {
		f.ids, f.items = slices.Delete(f.ids, i, i+1), slices.Delete(f.items, i, i+1)
	}
}

func (f *fakeServer) Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from := query.Get("page_id")
	f.requests = append(f.requests, from)
	if path != "api/conversations/search" || query.Get("limit") != "100" || query.Get("sort_order") != "UPDATED_AT_DESC" {
		return nil, fmt.Errorf("asked for %s?%s", path, query.Encode())
	}
	if f.before != nil {
		f.before(from)
	}
	if f.fail != nil {
		return nil, f.fail
	}
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	start := max(slices.Index(f.ids, from), 0) // an unknown one begins anew
	end := min(start+100, len(f.ids))
	next := "null"
	if end < len(f.ids) {
		next = strconv.Quote(f.ids[end])
	}
	return io.NopCloser(strings.NewReader(`{"items":[` + strings.Join(f.items[start:end], ",") + `],"next_page_id":` + next + `}`)), nil
}

func (f *fakeServer) taken() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := len(f.requests)
	f.requests = nil
	return n
}

const ours = "http://sidecar:8080/mcp"

func ourMatcher(tb testing.TB) *Matcher {
	tb.Helper()
	return matcher(tb, map[string]string{"tools": "/mcp"}, "http://sidecar:8080")
}

func searchAll(t *testing.T, f Client, l Limits) (ids []conversation.ID, err error) {
	t.Helper()
	err = search(t.Context(), f, l, func(infos []Info) bool {
		for _, i := range infos {
			ids = append(ids, i.ID)
		}
		return true
	})
	return ids, err
}

func TestSearchPages(t *testing.T) {
	f := &fakeServer{}
	for i := range 250 {
		f.put(fmt.Sprint("c", i), time.Unix(int64(i), 0), ours)
	}
	ids, err := searchAll(t, f, DefaultLimits())
	if err != nil || len(ids) != 250 || ids[0] != "c249" || ids[249] != "c0" || f.taken() != 3 {
		t.Errorf("%d conversations, %v", len(ids), err)
	}
	l := DefaultLimits()
	l.MaxPages = 2
	if ids, err := searchAll(t, f, l); !errors.Is(err, errTooMany) || len(ids) != 200 {
		t.Errorf("%d conversations of two pages, %v", len(ids), err)
	}
	f.taken()
	n := 0
	err = search(t.Context(), f, DefaultLimits(), func(infos []Info) bool { n += len(infos); return false })
	if err != nil || n != 100 || f.taken() != 1 {
		t.Errorf("%d conversations after the first page, %v", n, err)
	}
}

// TestSearchWhileTheListChanges takes away the conversation that a page begins
// with, so that the agent server begins anew, and moves others to the front.
func TestSearchWhileTheListChanges(t *testing.T) {
	f := &fakeServer{}
	for i := range 350 {
		f.put(fmt.Sprint("c", i), time.Unix(int64(i), 0), ours)
	}
	moves := 0
	f.before = func(from string) {
		if from == "" || moves == 3 {
			return
		}
		moves++
		if moves == 1 {
			f.remove(from)
			return
		}
		i := slices.Index(f.ids, from)
		id, item := f.ids[i], f.items[i]
		f.remove(id)
		f.ids, f.items = slices.Insert(f.ids, 0, id), slices.Insert(f.items, 0, item)
	}
	ids, err := searchAll(t, f, DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	seen := map[conversation.ID]bool{}
	for _, id := range ids {
		if seen[id] {
			t.Errorf("%s is visited twice", id)
		}
		seen[id] = true
	}
	if len(seen) != 349 || moves != 3 {
		t.Errorf("%d conversations after %d moves", len(seen), moves)
	}

	// An agent server that never comes to an end.
	endless := &funcClient{func(context.Context) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(`{"items":[` + info("x", time.Now()) + `],"next_page_id":"x"}`)), nil
	}}
	if ids, err := searchAll(t, endless, DefaultLimits()); !errors.Is(err, errTooMany) || len(ids) != 1 {
		t.Errorf("%v, %v", ids, err)
	}
}

// funcClient is a Client that is a function.
type funcClient struct {
	get func(context.Context) (io.ReadCloser, error)
}

func (f *funcClient) Get(ctx context.Context, _ string, _ url.Values) (io.ReadCloser, error) {
	return f.get(ctx)
}

func TestSearchUnusableAnswers(t *testing.T) {
	l := DefaultLimits()
	l.MaxPageBytes = 1000
	for name, tt := range map[string]struct{ body, want string }{
		"no JSON":   {"canary", "can't be read"},
		"no list":   {`{"detail":"canary"}`, "can't be read"},
		"array":     {`[{"id":"canary"}]`, "can't be read"},
		"cut short": {`{"items":[{"id":"canary"`, "can't be read"},
		"too large": {`{"items":[{"title":"` + strings.Repeat("canary", 1000) + `"}]}`, "more than 1000 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := searchAll(t, &funcClient{func(context.Context) (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader(tt.body)), nil
			}}, l)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "canary") {
				t.Errorf("err = %v", err)
			}
		})
	}
}

func TestSearchSlowPage(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, `{"items":[`) // the client may be gone
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer srv.Close()
	l := DefaultLimits()
	l.Timeout = 50 * time.Millisecond
	if _, err := searchAll(t, httpClient{srv.URL}, l); !errors.Is(err, errSlow) {
		t.Errorf("err = %v", err)
	}
}

func startAgentServer(t *testing.T, n int, urls ...string) string {
	t.Helper()
	s, err := agentserver.New(agentserver.DefaultConfig(), agentserver.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		var servers []agentserver.MCPServer
		for j, u := range urls {
			servers = append(servers, agentserver.MCPServer{Name: fmt.Sprint("s", j), URL: u})
		}
		id := agentserver.ID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		if _, _, err := s.Create(t.Context(), agentserver.CreateRequest{ID: id, Servers: servers}); err != nil {
			t.Fatal(err)
		}
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		srv.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return srv.URL
}

func TestLook(t *testing.T) {
	s := startAgentServer(t, 205, ours+"?key=canary", "http://other/mcp?key=canary")
	got, err := Look(t.Context(), httpClient{s}, ourMatcher(t), DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Survey{Conversations: 205, Using: 205, Ours: map[string]int{"tools": 205}, Complete: true}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	l := DefaultLimits()
	l.MaxPages = 1
	other := matcher(t, map[string]string{"tools": "/mcp"}, "https://sidecar")
	got, err = Look(t.Context(), httpClient{s}, other, l)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(Survey{Conversations: 100, Ours: map[string]int{}, Others: []string{ours, "http://other/mcp"}}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
