package health

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
)

// message is a JSON-RPC request as a stub gets it.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Cursor        *string                    `json:"cursor"`
		Meta          map[string]json.RawMessage `json:"_meta"`
		Notifications map[string]bool            `json:"notifications"`
	} `json:"params"`
}

// stub is a hand-written MCP server: answers decide by method; what they don't know is fine.
type stub struct {
	t       *testing.T
	answers map[string]func(w http.ResponseWriter, r *http.Request, m message)

	mu       sync.Mutex
	requests []string // "POST initialize", "GET", …
	headers  []http.Header
}

func newStub(t *testing.T) *stub {
	t.Helper()
	s := &stub{t: t, answers: map[string]func(http.ResponseWriter, *http.Request, message){}}
	s.on("initialize", func(w http.ResponseWriter, _ *http.Request, m message) {
		result(w, m, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"stub","version":"1"}}`)
	})
	s.on("notifications/initialized", func(w http.ResponseWriter, _ *http.Request, _ message) { w.WriteHeader(http.StatusAccepted) })
	s.on("ping", func(w http.ResponseWriter, _ *http.Request, m message) { result(w, m, `{}`) })
	s.on("tools/list", func(w http.ResponseWriter, _ *http.Request, m message) { result(w, m, `{"tools":[{"name":"a"}]}`) })
	return s
}

func (s *stub) on(method string, answer func(http.ResponseWriter, *http.Request, message)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answers[method] = answer
}

// withSession makes the stub hand out a session and know no other.
func (s *stub) withSession(id string) {
	s.on("initialize", func(w http.ResponseWriter, _ *http.Request, m message) {
		w.Header().Set("Mcp-Session-Id", id)
		result(w, m, `{"protocolVersion":"2025-06-18","capabilities":{"tools":{}},"serverInfo":{"name":"stub","version":"1"}}`)
	})
}

func (s *stub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m message
	what := r.Method
	if r.Method == http.MethodPost {
		body, err := io.ReadAll(r.Body)
		if err != nil || json.Unmarshal(body, &m) != nil {
			http.Error(w, "bad", http.StatusBadRequest)
			return
		}
		what += " " + m.Method
	} else {
		m.Method = r.Method
	}
	s.mu.Lock()
	s.requests = append(s.requests, what)
	s.headers = append(s.headers, r.Header.Clone())
	answer := s.answers[m.Method]
	s.mu.Unlock()
	switch {
	case answer != nil:
		answer(w, r, m)
	case r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	default:
		rpcFailure(w, http.StatusOK, m, mcp.METHOD_NOT_FOUND, "method not found")
	}
}

// got returns how often a request came.
func (s *stub) got(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, r := range s.requests {
		if r == what {
			n++
		}
	}
	return n
}

func result(w http.ResponseWriter, m message, result string) {
	w.Header().Set("Content-Type", "application/json")
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func rpcFailure(w http.ResponseWriter, status int, m message, code int, text string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	id := string(m.ID)
	if id == "" {
		id = "null"
	}
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, id, code, text)
}

// modernOnly makes the stub a server of 2026-07-28 and nothing else.
func (s *stub) modernOnly() {
	s.mu.Lock()
	clear(s.answers)
	s.mu.Unlock()
	strict := func(answer func(http.ResponseWriter, *http.Request, message)) func(http.ResponseWriter, *http.Request, message) {
		return func(w http.ResponseWriter, r *http.Request, m message) {
			var version string
			_ = json.Unmarshal(m.Params.Meta[mcp.MetaKeyProtocolVersion], &version)
			_, capable := m.Params.Meta[mcp.MetaKeyClientCapabilities]
			switch {
			case version != mcp.ProtocolVersion20260728 || !capable:
				rpcFailure(w, http.StatusBadRequest, m, mcp.INVALID_PARAMS, "missing _meta")
			case r.Header.Get("Mcp-Protocol-Version") != version || r.Header.Get("Mcp-Method") != m.Method || r.Header.Get("Mcp-Session-Id") != "":
				rpcFailure(w, http.StatusBadRequest, m, mcp.HEADER_MISMATCH, "headers differ")
			default:
				answer(w, r, m)
			}
		}
	}
	s.on("initialize", func(w http.ResponseWriter, _ *http.Request, m message) {
		rpcFailure(w, http.StatusBadRequest, m, mcp.UNSUPPORTED_PROTOCOL_VERSION, "unsupported protocol version")
	})
	s.on("server/discover", strict(func(w http.ResponseWriter, _ *http.Request, m message) {
		result(w, m, `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"modern","version":"3"}}}`)
	}))
	s.on("tools/list", strict(func(w http.ResponseWriter, _ *http.Request, m message) {
		result(w, m, `{"resultType":"complete","tools":[{"name":"a"}],"ttlMs":1000,"cacheScope":"private"}`)
	}))
}
