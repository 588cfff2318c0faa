package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
)

// stub is a small MCP server whose answers a test may replace.
type stub struct {
	// refuse answers requests of a session that it doesn't know.
	refuse func(w http.ResponseWriter, m stubMessage)
	// handle may answer a request; it returns false when it didn't.
	handle func(w http.ResponseWriter, r *http.Request, m stubMessage) bool
	// get answers GET; nil is 405.
	get http.HandlerFunc
	// version is what initialize agrees on, if not what the client asks for.
	version string
	// sessionless gives no session ids.
	sessionless bool
	// prefix makes session ids of one process differ from another's.
	prefix string

	mu    sync.Mutex
	known map[string]bool
}

type stubMessage struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name            string
		ProtocolVersion string
		Cursor          string
	}
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := r.Header.Get("Mcp-Session-Id")

	switch r.Method {
	case http.MethodGet:
		if s.get == nil {
			w.Header().Set("Allow", "POST, DELETE")
			http.Error(w, "no stream here", http.StatusMethodNotAllowed)

			return
		}

		s.get(w, r)

		return
	case http.MethodDelete:
		s.mu.Lock()
		defer s.mu.Unlock()

		if !s.known[id] {
			http.Error(w, "Session not found", http.StatusNotFound)
			return
		}

		delete(s.known, id)

		return
	}

	var m stubMessage

	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &m)

	if s.handle != nil && s.handle(w, r, m) {
		return
	}

	if m.Method == methodInitialize {
		s.initialize(w, m)
		return
	}

	s.mu.Lock()
	known := s.sessionless || s.known[id]
	s.mu.Unlock()

	switch {
	case !known:
		if s.refuse == nil {
			http.Error(w, "Session not found", http.StatusNotFound)
			return
		}

		s.refuse(w, m)
	case m.ID == nil || m.Method == "":
		w.WriteHeader(http.StatusAccepted)
	default:
		s.result(w, m, `{"content":[{"type":"text","text":"ran `+m.Params.Name+`"}]}`)
	}
}

func (s *stub) initialize(w http.ResponseWriter, m stubMessage) {
	version := m.Params.ProtocolVersion
	if s.version != "" {
		version = s.version
	}

	if !s.sessionless {
		s.mu.Lock()
		id := fmt.Sprintf("%s%d", s.prefix, len(s.known))

		if s.known == nil {
			s.known = map[string]bool{}
		}

		s.known[id] = true
		s.mu.Unlock()

		w.Header().Set("Mcp-Session-Id", id)
	}

	s.result(w, m, `{"protocolVersion":"`+version+`","capabilities":{"tools":{}},"serverInfo":{"name":"stub","version":"1"}}`)
}

func (s *stub) result(w http.ResponseWriter, m stubMessage, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

// drop breaks the connection of a request.
func drop() { panic(http.ErrAbortHandler) }
