package agentserver

import (
	"crypto/sha256"
	"crypto/subtle"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// apiKeyHeader is the request header that holds an API key.
const apiKeyHeader = "X-Session-API-Key" //nolint:gosec // the name of a header, not a key

// route has a handler for each HTTP method of one path.
type route map[string]http.HandlerFunc

// ServeHTTP serves the HTTP API.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.handler.ServeHTTP(w, r)
}

func (s *Server) routes() http.Handler {
	open := map[string]route{
		"/alive":       {http.MethodGet: s.getHealth},
		"/health":      {http.MethodGet: s.getHealth},
		"/ready":       {http.MethodGet: s.getReady},
		"/server_info": {http.MethodGet: s.getServerInfo},
	}
	const one = "/api/conversations/{id}"
	protected := map[string]route{
		"/api/conversations":        {http.MethodPost: s.createConversation},
		"/api/conversations/search": {http.MethodGet: s.searchConversations},
		"/api/conversations/count":  {http.MethodGet: s.countConversations},
		one:                         {http.MethodGet: s.getConversation, http.MethodDelete: s.deleteConversation},
		one + "/tools":              {http.MethodGet: s.getTools},
		one + "/events":             {http.MethodPost: s.addEvent},
		one + "/events/search":      {http.MethodGet: s.searchEvents},
	}
	switch s.cfg.Action {
	case ActionRefresh:
		protected[one+"/refresh_mcp_tools"] = route{http.MethodPost: s.refreshTools}
	case ActionReconnect:
		protected[one+"/reconnect_mcp"] = route{http.MethodPost: s.reconnectClients}
	case ActionNone:
	}

	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { answerNotFound(w) })
	for path, methods := range open {
		mux.Handle(path, methods)
	}
	for path, methods := range protected {
		for method, handler := range methods {
			methods[method] = s.authenticated(handler)
		}
		mux.Handle(path, methods)
	}
	return mux
}

// ServeHTTP dispatches on the method. As at OpenHands' agent server, whether a path or a
// method exists is answered before any key is asked for.
func (m route) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	handler, ok := m[r.Method]
	if !ok {
		w.Header().Set("Allow", strings.Join(slices.Sorted(maps.Keys(m)), ", "))
		answer(w, http.StatusMethodNotAllowed, detail{"Method Not Allowed"})
		return
	}
	handler(w, r)
}

// authenticated lets requests with an accepted key through.
func (s *Server) authenticated(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		keys, err := s.keys()
		if err != nil {
			s.logger.Error("reading the API keys failed, requests are refused", "err", err)
			answerFailure(w, err)
			return
		}
		if len(keys) > 0 && !accepted(keys, r.Header.Get(apiKeyHeader)) {
			answer(w, http.StatusUnauthorized, detail{"Unauthorized"})
			return
		}
		r.Body = http.MaxBytesReader(w, r.Body, s.cfg.MaxBody)
		next(w, r)
	}
}

// accepted compares the given key with each of the keys, in a time that tells
// nothing about them.
func accepted(keys []string, given string) bool {
	want := sha256.Sum256([]byte(given))
	found := 0
	for _, key := range keys {
		sum := sha256.Sum256([]byte(key))
		found |= subtle.ConstantTimeCompare(sum[:], want[:])
	}
	return found == 1
}

func (s *Server) getHealth(w http.ResponseWriter, _ *http.Request) {
	answer(w, http.StatusOK, map[string]string{"status": "ok"})
}

func (s *Server) getReady(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	closed := s.closed
	s.mu.Unlock()
	if closed {
		answer(w, http.StatusServiceUnavailable, map[string]string{
			"status": "initializing", "message": "the server is shutting down",
		})
		return
	}
	answer(w, http.StatusOK, map[string]string{"status": "ready"})
}

func (s *Server) getServerInfo(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	lastActive := s.lastActive
	s.mu.Unlock()
	answer(w, http.StatusOK, map[string]any{
		"uptime":       int(time.Since(s.started).Seconds()),
		"idle_time":    int(time.Since(lastActive).Seconds()),
		"title":        s.cfg.Name,
		"version":      s.cfg.Version,
		"capabilities": []string{},
	})
}
