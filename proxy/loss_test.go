package proxy

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func status(code int, contentType, body string) func(http.ResponseWriter, stubMessage) {
	return func(w http.ResponseWriter, m stubMessage) {
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		fmt.Fprint(w, strings.ReplaceAll(body, "ID", string(m.ID)))
	}
}

// TestSpellingsOfLoss: servers tell in many ways that they don't know a session.
func TestSpellingsOfLoss(t *testing.T) {
	for name, refuse := range map[string]func(http.ResponseWriter, stubMessage){
		"404 text":          status(404, "text/plain", "Session not found"),
		"404 empty":         status(404, "text/plain", ""),
		"404 -32001":        status(404, "application/json", `{"jsonrpc":"2.0","error":{"code":-32001,"message":"Session not found"},"id":null}`),
		"400 -32000":        status(400, "application/json", `{"jsonrpc":"2.0","error":{"code":-32000,"message":"Bad Request: No valid session ID provided"},"id":null}`),
		"400 text":          status(400, "text/plain", "Invalid session ID"),
		"401":               status(401, "text/plain", "invalid session"),
		"503":               status(503, "application/json", `{"error":"no such session"}`),
		"200 with an error": status(200, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32000,"message":"Unknown session"}}`),
		"200 event stream":  status(200, "text/event-stream", "event: message\ndata: {\"jsonrpc\":\"2.0\",\"id\":ID,\"error\":{\"code\":-32000,\"message\":\"Unknown session\"}}\n\n"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.backend.start(process{handler: &stub{prefix: "one-", refuse: refuse}})

			id := r.initialize()
			r.settled()
			r.swap(process{handler: &stub{prefix: "two-", refuse: refuse}})

			g := r.post(id, callBody(3, "x"))
			if got, result, code, _ := g.rpc(t); g.status != 200 || got != "3" || code != 0 || !strings.Contains(string(result), "ran x") {
				t.Errorf("%d %s", g.status, g.body)
			}

			if n := r.backend.count(2, methodInitialize); n != 1 {
				t.Errorf("%d initialize", n)
			}
		})
	}
}

// TestNotALoss: what only looks like a lost session passes as it is.
func TestNotALoss(t *testing.T) {
	for name, refuse := range map[string]func(http.ResponseWriter, stubMessage){
		"404 about the method": status(404, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32601,"message":"Method not found"}}`),
		"400 about a session":  status(400, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no database session"}}`),
		"200 about a session":  status(200, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"no database session"}}`),
		"401 with a challenge": func(w http.ResponseWriter, _ stubMessage) {
			w.Header().Set("WWW-Authenticate", "Bearer")
			w.WriteHeader(http.StatusUnauthorized)
			fmt.Fprint(w, "session expired")
		},
		"400 about the request": status(400, "text/plain", "bad arguments"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := &stub{}
			s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
				if m.Method == methodCall {
					refuse(w, m)
				}

				return m.Method == methodCall
			}
			r.backend.start(process{handler: s})

			id := r.initialize()
			g := r.post(id, callBody(3, "x"))

			want := r.direct(callBody(3, "x"), "0")
			if g.status != want.status || g.body != want.body {
				t.Errorf("got %d %q, want %d %q", g.status, g.body, want.status, want.body)
			}

			if n := r.backend.count(1, methodInitialize); n != 1 {
				t.Errorf("%d initialize", n)
			}
		})
	}
}

// direct asks the backend without the proxy.
func (r *rig) direct(body, session string) got {
	front := r.front.URL
	r.front.URL = "http://" + r.backend.addr
	defer func() { r.front.URL = front }()

	return r.post(session, body)
}

// TestNotReady: whoever answers after the swap isn't an MCP server yet.
func TestNotReady(t *testing.T) {
	for name, early := range map[string]func(http.ResponseWriter, stubMessage){
		"404":  status(404, "text/plain", "404 page not found"),
		"503":  status(503, "text/html", "<h1>starting</h1>"),
		"html": status(200, "text/html", "<h1>starting</h1>"),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.backend.start(process{handler: &stub{prefix: "one-"}})

			id := r.initialize()
			r.settled()

			tries := 0
			s := &stub{prefix: "two-"}
			s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
				if m.Method != methodInitialize {
					return false
				}

				s.mu.Lock()
				tries++
				n := tries
				s.mu.Unlock()

				if n < 4 {
					early(w, m)
				}

				return n < 4
			}
			r.swap(process{handler: s})

			g := r.post(id, callBody(3, "x"))
			if _, result, _, _ := g.rpc(t); g.status != 200 || !strings.Contains(string(result), "ran x") {
				t.Errorf("%d %s", g.status, g.body)
			}
		})
	}
}

// TestSessionEnds: a backend that doesn't speak the client's revision any more
// can't be hidden.
func TestSessionEnds(t *testing.T) {
	for name, s := range map[string]*stub{
		"other version": {prefix: "two-", version: "2025-03-26"},
		"refused": {prefix: "two-", handle: func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
			if m.Method == methodInitialize {
				status(200, "application/json", `{"jsonrpc":"2.0","id":ID,"error":{"code":-32602,"message":"Unsupported protocol version"}}`)(w, m)
			}

			return m.Method == methodInitialize
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.backend.start(process{handler: &stub{prefix: "one-"}})

			const conv = "0a6e3f26-9a1f-4d8b-8a52-6a1f4d8b8a52"

			id := r.initialize("X-OpenHands-ServerConversation-ID", conv)
			r.settled()
			r.swap(process{handler: s})

			for range 2 {
				g := r.post(id, callBody(3, "x"))
				if got, _, code, _ := g.rpc(t); g.status != 404 || got != "3" || code != codeNoSession {
					t.Errorf("%d %s", g.status, g.body)
				}
			}

			if _, _, lost := r.convs.all(); len(lost) != 1 || lost[0] != conversation.ID(conv) {
				t.Errorf("lost %v", lost)
			}
		})
	}
}

// TestRestoredSettings: log level and subscriptions outlive a swap.
func TestRestoredSettings(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &stub{prefix: "one-"}})

	id := r.initialize()
	r.settled()

	for _, body := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`,
		`{"jsonrpc":"2.0","id":2,"method":"resources/subscribe","params":{"uri":"a://1"}}`,
		`{"jsonrpc":"2.0","id":3,"method":"resources/subscribe","params":{"uri":"a://2"}}`,
		`{"jsonrpc":"2.0","id":4,"method":"resources/unsubscribe","params":{"uri":"a://1"}}`,
	} {
		if g := r.post(id, body); g.status != 200 {
			t.Fatalf("%d %s", g.status, g.body)
		}
	}

	r.swap(process{handler: &stub{prefix: "two-"}})
	r.post(id, callBody(5, "x"))

	var order []string
	for _, c := range r.backend.calls(func(c call) bool { return c.epoch == 2 && (c.session == "two-0" || c.method == methodInitialize) }) {
		order = append(order, c.method)
	}

	want := "[initialize notifications/initialized logging/setLevel resources/subscribe tools/call]"
	if fmt.Sprint(order) != want {
		t.Errorf("got %v, want %s", order, want)
	}

	for _, c := range r.backend.calls(func(c call) bool { return c.epoch == 2 && c.method == "resources/subscribe" }) {
		if !strings.Contains(c.body, `"a://2"`) {
			t.Errorf("subscribed %s", c.body)
		}
	}
}

// TestUnreadable5xx: clients of MCP never get an answer that they can't read.
func TestUnreadable5xx(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.Servers[0].Hold = time.Second })
	s := &stub{}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Params.Name != "crash" && m.Method != "prompts/list" {
			return false
		}

		http.Error(w, "oops", http.StatusInternalServerError)

		return true
	}
	r.backend.start(process{handler: s})

	id := r.initialize()

	if got, _, code, data := r.post(id, callBody(3, "crash")).rpc(t); got != "3" || code != CodeInterrupted || data["mayHaveExecuted"] != true || data["reason"] != string(ReasonBackend) {
		t.Errorf("call: %s %d %v", got, code, data)
	}

	if got, _, code, data := r.post(id, `{"jsonrpc":"2.0","id":"p","method":"prompts/list"}`).rpc(t); got != `"p"` || code != CodeInterrupted || data["mayHaveExecuted"] != false {
		t.Errorf("list: %s %d %v", got, code, data)
	}
}
