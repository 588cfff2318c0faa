package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestModernRequestsOverASwap(t *testing.T) {
	r := newRig(t)
	_, first := liveServer("a")
	r.backend.start(first)

	call := func(id string) {
		t.Helper()

		g := r.modern(id, methodCall, `"name":"a","arguments":{}`, "Mcp-Name", "a")
		if got, result, _, _ := g.rpc(t); got != id || !strings.Contains(string(result), "ran a") {
			t.Errorf("got %d %s", g.status, g.body)
		}
	}

	call("1")
	r.settled()
	r.backend.kill()

	done := make(chan struct{})

	go func() {
		defer close(done)

		call("2")
	}()

	eventually(t, "the call is held", func() error {
		if r.proxy.Stats()[0].Held != 1 {
			return errNotReady
		}

		return nil
	})

	_, next := liveServer("a")
	r.backend.start(next)
	<-done

	if n := r.backend.count(2, methodInitialize); n != 0 {
		t.Errorf("%d initialize", n)
	}
}

// TestModernErrors: none of them is a lost session, or anything else of the
// sidecar's business.
func TestModernErrors(t *testing.T) {
	for _, e := range []struct {
		status, code int
		text         string
	}{
		{404, -32601, "Method not found"},
		{400, -32020, "header mismatch: no such session"},
		{400, -32021, "session capability missing"},
		{400, -32022, "unsupported session version"},
		{400, -32602, "tool not found"},
		{503, -32000, "session store is away"},
	} {
		t.Run(strconv.Itoa(e.code), func(t *testing.T) {
			body := fmt.Sprintf(`{"jsonrpc":"2.0", "id":1,"error":{"code":%d,"message":%q}}`, e.code, e.text)
			s := &stub{handle: func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
				if m.Method != methodCall {
					return false
				}

				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(e.status)
				_, _ = io.WriteString(w, body)

				return true
			}}
			r := newRig(t)
			r.backend.start(process{handler: s})

			session := r.initialize()

			// A session that the client has besides is not meant.
			g := r.modern("1", methodCall, `"name":"a"`, "Mcp-Session-Id", session)
			if g.status != e.status || g.body != body {
				t.Errorf("got %d %s", g.status, g.body)
			}

			if g := r.modern("1", methodCall, `"name":"a"`, "Mcp-Session-Id", "forged"); g.status != e.status || g.body != body {
				t.Errorf("got %d %s", g.status, g.body)
			}

			if n := r.backend.count(1, methodInitialize) + r.backend.count(1, methodPing); n != 1 {
				t.Errorf("%d handshakes and pings", n)
			}
		})
	}
}

// TestModernServerError: a client of this revision gets what the backend says.
func TestModernServerError(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &stub{handle: func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Method == methodCall {
			http.Error(w, "it is broken", http.StatusInternalServerError)
		}

		return m.Method == methodCall
	}}})

	if g := r.modern("1", methodCall, `"name":"a"`); g.status != http.StatusInternalServerError || g.body != "it is broken\n" {
		t.Errorf("got %d %s", g.status, g.body)
	}

	if n := r.backend.count(1, methodCall); n != 1 {
		t.Errorf("%d calls", n)
	}
}

func TestModernHeaders(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &stub{sessionless: true}})

	header := []string{
		"Mcp-Name", "=?base64?SGVsbG8=?=", "Mcp-Param-City", " a\tb  c", "Mcp-Param-N", "042", "Mcp-Param-Other", "=?Base64?x?=", "Traceparent", "00-1",
	}
	body := modernBody(`1.0`, methodCall, `"name":"a","arguments":{"n":9007199254740993,"n":1E400}`)

	if g := r.post("", body, append(modernHeader(methodCall), header...)...); g.status != http.StatusOK {
		t.Errorf("got %d %s", g.status, g.body)
	}

	c := r.backend.calls(func(c call) bool { return c.method == methodCall })[0]
	if c.body != body {
		t.Errorf("sent %s", c.body)
	}

	for i := 0; i < len(header); i += 2 {
		if v := c.header[header[i]]; !slices.Equal(v, []string{strings.TrimSpace(header[i+1])}) {
			t.Errorf("%s: %q, want %q", header[i], v, header[i+1])
		}
	}

	for _, name := range []string{"Mcp-Method", "Mcp-Protocol-Version"} {
		if len(c.header[name]) != 1 {
			t.Errorf("%s: %q", name, c.header[name])
		}
	}
}

func TestModernReplay(t *testing.T) {
	for _, tt := range []struct {
		name, method, params string
		replayed             bool
	}{
		{"list", methodList, "", true},
		{"read", "resources/read", `"uri":"u"`, true},
		{"annotated tool", methodCall, `"name":"reads"`, true},
		{"other tool", methodCall, `"name":"writes"`, false},
		{"with answers", methodCall, `"name":"reads","inputResponses":{"a":{}}`, false},
		{"with state", methodCall, `"name":"reads","requestState":"s"`, false},
		{"prompt with state", "prompts/get", `"name":"p","requestState":"s"`, false},
		{"read with answers", "resources/read", `"uri":"u","inputResponses":{}`, false},
		{"task", methodCall, `"name":"reads","task":{}`, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var tries atomic.Int32

			s := &stub{sessionless: true, handle: func(_ http.ResponseWriter, _ *http.Request, m stubMessage) bool {
				if m.Method == tt.method && tries.Add(1) == 1 {
					drop()
				}

				return false
			}}
			r := newRig(t)
			r.backend.start(process{handler: s, tools: []ToolHints{{Name: "reads", Digest: "1", ReadOnly: true}, {Name: "writes", Digest: "2"}}})
			r.settled()

			g := r.modern("1", tt.method, tt.params)
			_, _, code, data := g.rpc(t)

			switch {
			case tt.replayed && (code != 0 || tries.Load() != 2):
				t.Errorf("tried %d times: %d %s", tries.Load(), g.status, g.body)
			case !tt.replayed && (code != CodeInterrupted || tries.Load() != 1 || data["reason"] != string(ReasonInterrupted)):
				t.Errorf("tried %d times: %d %s", tries.Load(), g.status, g.body)
			}
		})
	}
}

// TestModernConversation: requests without a session belong to the conversation
// that their address or header names, and so do the pages of a listing.
func TestModernConversation(t *testing.T) {
	const id = "0b4b1d5e-1c2d-4e3f-8a9b-0c1d2e3f4a5b"

	pages := func(w http.ResponseWriter, r *http.Request) bool {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))

		switch {
		case !bytes.Contains(body, []byte(methodList)):
			return false
		case bytes.Contains(body, []byte(`"cursor":"2"`)):
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[]}}`)
		case bytes.Contains(body, []byte(`"cursor":""`)):
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":"2"}}`)
		default:
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"result":{"tools":[],"nextCursor":""}}`)
		}

		return true
	}

	for name, send := range map[string]func(r *rig, params string) got{
		"url": func(r *rig, params string) got {
			return r.do(r.t.Context(), http.MethodPost, "/c/"+id+"/mcp", "", modernBody("1", methodList, params), modernHeader(methodList)...)
		},
		"header": func(r *rig, params string) got {
			return r.modern("1", methodList, params, "X-OpenHands-ServerConversation-ID", strings.ReplaceAll(id, "-", ""))
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			handler := &stub{sessionless: true}
			proc := process{handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				w.Header().Set("Content-Type", "application/json")

				if !pages(w, req) {
					handler.ServeHTTP(w, req)
				}
			}), tools: tools("a")}

			r.backend.start(proc)
			r.settled()

			before := time.Now()

			send(r, "")
			send(r, `"cursor":""`)

			// Somebody else's page goes on with nothing that is known.
			r.modern("1", methodList, `"cursor":"2"`, "Authorization", "Bearer x", "X-OpenHands-ServerConversation-ID", id)

			if _, listed, _ := r.convs.all(); len(listed) != 0 {
				t.Errorf("listed %v before the last page", listed)
			}

			send(r, `"cursor":"2"`)

			seen, listed, _ := r.convs.all()
			if len(seen) != 4 || seen[0].ID != conversation.ID(id) {
				t.Errorf("seen %v", seen)
			}

			if len(listed) != 1 || listed[0].ID != conversation.ID(id) || listed[0].Generation != 1 || !listed[0].Complete ||
				listed[0].Began.Before(before) || listed[0].Ended.Before(listed[0].Began) {
				t.Errorf("listed %+v", listed)
			}

			for _, c := range r.backend.calls(func(c call) bool { return c.method == methodList }) {
				if c.header.Get("X-OpenHands-ServerConversation-ID") != "" {
					t.Error("the backend saw the conversation")
				}
			}

			// Pages of two processes are no listing.
			send(r, "")
			r.swap(proc)
			r.settled()
			send(r, `"cursor":""`)
			send(r, `"cursor":"2"`)

			if _, listed, _ := r.convs.all(); len(listed) != 1 {
				t.Errorf("listed %+v", listed)
			}
		})
	}
}

// TestModernWithoutStreams: a stateless server is left as it is.
func TestModernWithoutStreams(t *testing.T) {
	r := newRig(t)
	_, p := liveServer("a")
	r.backend.start(p)

	for _, method := range []string{http.MethodGet, http.MethodDelete} {
		if g := r.do(t.Context(), method, "/mcp", "", "", "Mcp-Protocol-Version", modernVersion, "Accept", "text/event-stream"); g.status != http.StatusMethodNotAllowed || g.header.Get("Allow") != "POST" {
			t.Errorf("%s: %d %v", method, g.status, g.header)
		}
	}
}

// TestModernWhileStarting: a server that isn't complete yet may have nothing at
// its endpoint. Requests wait for it, also those that must not run twice; where
// there is never anything, the client learns so.
func TestModernWhileStarting(t *testing.T) {
	for times, status := range map[int64]int{maxOdd - 1: http.StatusOK, 100: http.StatusNotFound} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			var tries atomic.Int64

			r := newRig(t)
			r.backend.start(process{handler: &stub{sessionless: true, handle: func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
				if m.Method != methodCall || tries.Add(1) > times {
					return false
				}

				http.Error(w, "starting", http.StatusNotFound)

				return true
			}}})

			g := r.modern("1", methodCall, `"name":"a"`)
			if g.status != status || strings.Contains(g.body, "ran a") != (status == http.StatusOK) {
				t.Errorf("%d %s", g.status, g.body)
			}

			if n := tries.Load(); n != maxOdd {
				t.Errorf("sent %d times", n)
			}
		})
	}
}
