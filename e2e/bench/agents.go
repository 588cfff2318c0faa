package main

import (
	"io"
	"net"
	"net/http"
	"strings"
	"time"
)

// agents is an agent server that refreshes conversations at once.
type agents struct {
	addr      string
	server    *http.Server
	refreshed chan time.Time // when each refresh was asked for
}

// newAgents starts an agent server. It must be able to note so many refreshes before
// somebody looks at them.
func newAgents(refreshes int) (*agents, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}

	a := &agents{addr: l.Addr().String(), refreshed: make(chan time.Time, refreshes)}
	a.server = &http.Server{Handler: http.HandlerFunc(a.handle), ReadHeaderTimeout: patience}

	go func() { _ = a.server.Serve(l) }()

	return a, nil
}

func (a *agents) handle(w http.ResponseWriter, r *http.Request) {
	switch {
	case strings.HasSuffix(r.URL.Path, "/refresh_mcp_tools"):
		a.refreshed <- time.Now()

		w.WriteHeader(http.StatusNoContent)
	case strings.HasSuffix(r.URL.Path, "/search"): // nothing to discover
		w.Header().Set("Content-Type", "application/json")

		_, _ = io.WriteString(w, `{"items":[],"next_page_id":null}`)
	default:
		http.NotFound(w, r)
	}
}

func (a *agents) close() { _ = a.server.Close() }
