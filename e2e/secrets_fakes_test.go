//go:build unix

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// failure is a way to answer a request badly. The answers tell all that they were asked with, as careless programs do.
type failure struct {
	name string
	// own is that the sidecar answers its client in place of the backend. Else the backend's answer is passed on as it is.
	own bool
	// success is that the status says so: what follows doesn't matter to the refresh of a conversation.
	success bool
	answer  func(w http.ResponseWriter, dump string)
}

func failures() []failure {
	status := func(code int) func(http.ResponseWriter, string) {
		return func(w http.ResponseWriter, dump string) {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]string{"detail": dump, "exception": dump})
		}
	}
	var all []failure
	for _, code := range []int{400, 401, 403, 409, 422, 429} {
		all = append(all, failure{http.StatusText(code), false, false, status(code)})
	}
	for _, code := range []int{500, 502, 503, 504} {
		all = append(all, failure{http.StatusText(code), true, false, status(code)})
	}
	all = append(all,
		failure{"text", true, false, func(w http.ResponseWriter, dump string) { http.Error(w, dump, http.StatusInternalServerError) }},
		failure{"page", true, false, func(w http.ResponseWriter, dump string) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, "<html>"+dump)
		}},
		failure{"reset", true, false, func(http.ResponseWriter, string) { panic(http.ErrAbortHandler) }},
		failure{"cut short", false, true, func(w http.ResponseWriter, dump string) {
			w.Header().Set("Content-Length", "1000000")
			_, _ = io.WriteString(w, dump)
		}},
		failure{"redirect", true, false, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Location", "http://canary-user:canary-password@127.0.0.1:1/canary-path?canary-query")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}},
		failure{"endless", false, true, func(w http.ResponseWriter, _ string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, `{"detail":"`)
			for range 20 << 20 / 1024 {
				if _, err := io.WriteString(w, strings.Repeat("x", 1024)); err != nil {
					return
				}
			}
		}},
		failure{"no HTTP", true, false, func(w http.ResponseWriter, dump string) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				_, _ = io.WriteString(conn, dump)
				_ = conn.Close()
			}
		}},
	)
	for _, code := range []int{200, 400} {
		all = append(all, failure{fmt.Sprintf("JSON-RPC error with status %d", code), false, code == 200, func(w http.ResponseWriter, dump string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(map[string]any{
				"jsonrpc": "2.0", "id": 1, "error": map[string]any{"code": -32000, "message": dump, "data": dump},
			})
		}})
	}
	for _, code := range []int{410, 404} { // the last, since it means that there is no such action, which is remembered
		all = append(all, failure{http.StatusText(code), false, false, status(code)})
	}
	return all
}

// failing is a program that answers well until it is told not to.
type failing struct {
	url   string
	fail  atomic.Pointer[failure]
	asked atomic.Int64 // requests that were answered badly
}

func startFailing(t *testing.T, well http.HandlerFunc) *failing {
	t.Helper()
	f := &failing{}
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		bad := f.fail.Load()
		if bad == nil {
			well(w, r)
			return
		}
		f.asked.Add(1)
		dump, _ := httputil.DumpRequest(r, true)
		bad.answer(w, string(dump))
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	srv.Start()
	t.Cleanup(srv.Close)
	f.url = srv.URL
	return f
}

// backendHandler is a small MCP server, whose session ids are secrets too.
func backendHandler() http.HandlerFunc {
	var sessions atomic.Int64
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if json.NewDecoder(r.Body).Decode(&m) != nil || m.ID == nil {
			w.WriteHeader(http.StatusAccepted)
			return
		}
		result := `{}`
		switch m.Method {
		case "initialize":
			w.Header().Set("Mcp-Session-Id", fmt.Sprintf("canary-backend-session-%d", sessions.Add(1)))
			result = `{"protocolVersion":"` + revision + `","capabilities":{"tools":{}},"serverInfo":{"name":"small","version":"1"}}`
		case "tools/list":
			result = `{"tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`
		case "tools/call":
			result = `{"content":[{"type":"text","text":"canary-result"}]}`
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
	}
}

// agentHandler is an agent server with one conversation.
func agentHandler(id, mcpURL string) http.HandlerFunc {
	info := fmt.Sprintf(`{"id":%q,"execution_status":"idle","agent":{"kind":"Agent","mcp_config":{"tools":{"url":%q}}},"title":"canary-title"}`, id, mcpURL)
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case strings.HasSuffix(r.URL.Path, "/search"):
			fmt.Fprintf(w, `{"items":[%s],"next_page_id":null}`, info)
		case strings.HasSuffix(r.URL.Path, "/refresh_mcp_tools") && r.Method != http.MethodPost:
			w.WriteHeader(http.StatusMethodNotAllowed)
		case strings.HasSuffix(r.URL.Path, "/refresh_mcp_tools"):
			_, _ = io.WriteString(w, `{"success":true}`)
		case strings.HasSuffix(r.URL.Path, "/"+id):
			_, _ = io.WriteString(w, info)
		default:
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, `{"detail":"Not Found"}`)
		}
	}
}

// sweep collects everything that the sidecar says, and looks for what it must not.
type sweep struct {
	t *testing.T

	mu    sync.Mutex
	heard map[string]string // by where it was said
}

func newSweep(t *testing.T) *sweep {
	t.Helper()
	return &sweep{t: t, heard: map[string]string{}}
}

func (s *sweep) add(where, text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.heard[where] += text
}

// check fails the test for each secret that was heard, with what stands around it.
func (s *sweep) check(secrets ...string) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for where, text := range s.heard {
		if text == "" {
			s.t.Errorf("%s: nothing was heard", where)
		}
		for _, secret := range append(secrets, "canary") {
			if i := strings.Index(text, secret); i >= 0 {
				s.t.Errorf("%s: …%s…", where, text[max(i-200, 0):min(i+200, len(text))])
			}
		}
	}
}

// ask sends a request of any kind, and adds the body of the answer.
func (s *sweep) ask(where, method, url, body string, header map[string]string) int {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		s.t.Fatalf("%s: %v", where, err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("%s: %v", where, err)
	}
	s.add(where, fmt.Sprintln(resp.StatusCode, string(raw)))
	return resp.StatusCode
}

// listen adds what comes on an event stream, until the returned function is called.
func (s *sweep) listen(where, url string, header map[string]string) (stop func()) {
	s.t.Helper()
	r, err := http.NewRequest(http.MethodGet, url, http.NoBody)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	transport := &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{}).DialContext}
	resp, err := (&http.Client{Transport: transport}).Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 4096)
		for {
			n, err := resp.Body.Read(buf)
			s.add(where, string(buf[:n]))
			if err != nil {
				return
			}
		}
	})
	return func() { resp.Body.Close(); wg.Wait() }
}
