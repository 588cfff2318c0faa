package notify

import (
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

func mustURL(tb testing.TB, s string) *url.URL {
	tb.Helper()
	u, err := url.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}

	return u
}

// newTestClient returns a client for url whose short retries come at once.
func newTestClient(tb testing.TB, rawURL string, options ...func(*AgentServer)) *client {
	tb.Helper()
	s := DefaultAgentServer("default", mustURL(tb, rawURL))
	for _, o := range options {
		o(&s)
	}
	m := NewMetrics(prometheus.NewPedanticRegistry())
	m.InitAgentServer(s.Name)
	c := newClient(s, m.client(s.Name))
	c.http.RetryWaitMin, c.http.RetryWaitMax = time.Millisecond, 2*time.Millisecond
	tb.Cleanup(c.close)

	return c
}

func withKey(key func() (string, error)) func(*AgentServer) {
	return func(s *AgentServer) { s.APIKey = key }
}

// fakeAgentServer answers by method and path, and remembers what it was asked.
type fakeAgentServer struct {
	*httptest.Server

	mu       sync.Mutex
	answers  map[string]func(http.ResponseWriter, *http.Request)
	requests []string
}

func newFakeAgentServer(tb testing.TB) *fakeAgentServer {
	tb.Helper()
	f := &fakeAgentServer{answers: map[string]func(http.ResponseWriter, *http.Request){}}
	f.Server = httptest.NewServer(f)
	tb.Cleanup(f.Close)

	return f
}

func (f *fakeAgentServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	line := r.Method + " " + r.URL.Path
	f.mu.Lock()
	f.requests = append(f.requests, line)
	answer := f.answers[line]
	f.mu.Unlock()
	if answer == nil {
		answer = status(http.StatusNotFound, `{"detail":"Not Found"}`)
	}
	answer(w, r)
}

func (f *fakeAgentServer) on(line string, answer func(http.ResponseWriter, *http.Request)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[line] = answer
}

// taken returns and forgets what was asked.
func (f *fakeAgentServer) taken() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.requests
	f.requests = nil

	return r
}

func status(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) {
		if body != "" && body[0] == '{' {
			w.Header().Set("Content-Type", "application/json")
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body) // the client may be gone
	}
}
