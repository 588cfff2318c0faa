package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// agents is an agent server that refreshes conversations at once.
type agents struct {
	addr   string
	server *http.Server

	mu        sync.Mutex
	refreshed []time.Time // when each refresh was asked for
}

func newAgents() (*agents, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	a := &agents{addr: l.Addr().String()}
	a.server = &http.Server{Handler: http.HandlerFunc(a.handle), ReadHeaderTimeout: patience}

	go func() { _ = a.server.Serve(l) }()

	return a, nil
}

func (a *agents) handle(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/refresh_mcp_tools"):
		a.mu.Lock()
		a.refreshed = append(a.refreshed, time.Now())
		a.mu.Unlock()
		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/search"): // nothing to discover
		w.Header().Set("Content-Type", "application/json")

		_, _ = io.WriteString(w, `{"items":[],"next_page_id":null}`)
	default:
		http.NotFound(w, r)
	}
}

// forget forgets what was refreshed.
func (a *agents) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()

	a.refreshed = nil
}

// times returns when the first and the last of n refreshes came, if that many did.
func (a *agents) times(n int) (first, last time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()

	if len(a.refreshed) < n {
		return first, last, false
	}

	return a.refreshed[0], a.refreshed[n-1], true
}

func (a *agents) close() { _ = a.server.Close() }
