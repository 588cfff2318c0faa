package proxy

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// TestSuccessor: another sidecar with the same key carries on with the sessions,
// also without what the first has stored, and also when the backend is another one
// as well.
func TestSuccessor(t *testing.T) {
	for _, swap := range []bool{false, true} {
		for _, forget := range []bool{false, true} {
			t.Run(fmt.Sprintf("swap %v, forget %v", swap, forget), func(t *testing.T) {
				r := newRig(t)
				r.backend.start(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))

				id := r.initialize()
				r.settled()

				if forget {
					r.blobs = newMemoryBlobs()
				}

				r.build()

				if swap {
					r.swap(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))
				}

				r.settled()

				if g := r.post(id, callBody(1, "a")); !strings.Contains(g.body, "ran a") {
					t.Errorf("%d %s", g.status, g.body)
				}

				want := 0
				if swap {
					want = 1
				}

				if n := r.backend.count(2, methodInitialize); n != want {
					t.Errorf("%d initialize", n)
				}

				l := r.listen(id)
				l.next(t, methodListChanged) // it isn't known what the client was told
			})
		}
	}
}

// TestRecreatedSessionOfAPredecessor: what changed since the id was sealed is in
// the store.
func TestRecreatedSessionOfAPredecessor(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &stub{prefix: "one-"}})

	id := r.initialize()
	r.settled()
	r.swap(process{handler: &stub{prefix: "two-"}})
	r.settled()
	r.post(id, callBody(1, "a"))
	r.build()
	r.settled()
	r.post(id, callBody(2, "a"))

	if n := r.backend.count(2, methodInitialize); n != 1 {
		t.Errorf("%d initialize", n)
	}
}

func TestForeignSessions(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &stub{}})

	id := r.initialize()
	before := len(r.backend.calls(func(call) bool { return true }))

	flipped := []byte(id)
	flipped[len(flipped)/2] ^= 1

	for name, c := range map[string]struct {
		id     string
		status int
	}{
		"forged":    {"mcp-session-1f3b", 404},
		"changed":   {string(flipped), 404},
		"long":      {strings.Repeat("a", 10<<10), 400},
		"a space":   {"a b", 400},
		"non-ASCII": {"ä", 400},
	} {
		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			g := r.do(t.Context(), method, "/mcp", c.id, listBody(3), "Accept", "application/json, text/event-stream")
			if _, _, code, _ := g.rpc(t); g.status != c.status || c.status == 404 && code != codeNoSession {
				t.Errorf("%s %s: %d %s", method, name, g.status, g.body)
			}
		}
	}

	if n := len(r.backend.calls(func(call) bool { return true })); n != before {
		t.Errorf("the backend saw %d requests", n-before)
	}
}

func TestDelete(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &stub{prefix: "one-"}})

	id := r.initialize()
	l := r.listen(id)

	if g := r.do(t.Context(), http.MethodDelete, "/mcp", id, ""); g.status != 200 {
		t.Errorf("%d %s", g.status, g.body)
	}

	l.end(t)

	check := func() {
		t.Helper()

		for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete} {
			g := r.do(t.Context(), method, "/mcp", id, listBody(3), "Accept", "text/event-stream")
			if _, _, code, _ := g.rpc(t); g.status != 404 || code != codeNoSession {
				t.Errorf("%s: %d %s", method, g.status, g.body)
			}
		}
	}

	check()
	r.build() // a successor knows it too
	check()

	if n := r.proxy.Stats()[0].Sessions; n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

func TestDeleteRefused(t *testing.T) {
	r := newRig(t)
	inner := &stub{}
	r.backend.start(process{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			w.Header().Set("Allow", "GET, POST")
			w.WriteHeader(http.StatusMethodNotAllowed)

			return
		}

		inner.ServeHTTP(w, r)
	})})

	id := r.initialize()

	if g := r.do(t.Context(), http.MethodDelete, "/mcp", id, ""); g.status != 405 || g.header.Get("Allow") != "GET, POST" {
		t.Errorf("%d %v", g.status, g.header)
	}

	if g := r.post(id, callBody(1, "x")); g.status != 200 {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// token is an unsigned JWT.
func token(iss, sub, id string) string {
	enc := base64.RawURLEncoding.EncodeToString

	return "Bearer " + enc([]byte(`{"alg":"none"}`)) + "." + enc(fmt.Appendf(nil, `{"iss":%q,"sub":%q,"jti":%q}`, iss, sub, id)) + ".sig" + id
}

func TestPrincipals(t *testing.T) {
	type request struct {
		auth   string
		status int
	}

	for name, c := range map[string]struct {
		first string
		live  []request // while the backend's session lives
		lost  []request // after a swap
	}{
		"JWT": {
			first: token("i", "alice", "1"),
			live:  []request{{token("i", "alice", "2"), 200}, {token("i", "bob", "1"), 404}, {token("j", "alice", "1"), 404}},
			lost:  []request{{token("i", "bob", "1"), 404}, {token("i", "alice", "3"), 200}},
		},
		"opaque": {
			first: "Bearer one",
			live:  []request{{"Bearer bad", 401}, {"Bearer one", 200}},
			lost:  []request{{"Bearer two", 404}, {"", 404}, {"Bearer one", 200}},
		},
		"rotated": {
			first: "Bearer one",
			live:  []request{{"Bearer two", 200}},
			lost:  []request{{"Bearer one", 404}, {"Bearer two", 200}},
		},
		"anonymous": {
			live: []request{{"", 200}},
			lost: []request{{"", 200}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			guard := func(h http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if r.Header.Get("Authorization") == "Bearer bad" {
						w.Header().Set("WWW-Authenticate", "Bearer")
						w.WriteHeader(http.StatusUnauthorized)

						return
					}

					h.ServeHTTP(w, r)
				})
			}

			r.backend.start(process{handler: guard(&stub{prefix: "one-"})})

			auth := func(v string) []string {
				if v == "" {
					return nil
				}

				return []string{"Authorization", v}
			}

			id := r.initialize(auth(c.first)...)
			r.settled()

			for _, q := range c.live {
				if g := r.post(id, callBody(1, "x"), auth(q.auth)...); g.status != q.status {
					t.Errorf("live: %q: %d %s", q.auth, g.status, g.body)
				}
			}

			r.swap(process{handler: guard(&stub{prefix: "two-"})})
			r.settled()

			for _, q := range c.lost {
				if g := r.post(id, callBody(1, "x"), auth(q.auth)...); g.status != q.status {
					t.Errorf("lost: %q: %d %s", q.auth, g.status, g.body)
				}

				for _, b := range r.backend.calls(func(b call) bool { return b.epoch == 2 && b.method == methodInitialize }) {
					if q.status == 404 || b.header.Get("Authorization") != q.auth {
						t.Errorf("re-created for %q with %q", q.auth, b.header.Get("Authorization"))
					}
				}
			}
		})
	}
}

// TestEviction: sessions that nobody uses go, on both sides, and may come back.
func TestEviction(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.SessionIdle = 300 * time.Millisecond })
	r.backend.start(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))

	listener := r.initialize()
	r.listen(listener)

	var (
		wg  sync.WaitGroup
		mu  sync.Mutex
		ids []string
	)

	for range 8 {
		wg.Go(func() {
			for range 10 {
				id := r.initialize()

				mu.Lock()
				ids = append(ids, id)
				mu.Unlock()
			}
		})
	}

	wg.Wait()
	eventually(t, "idle sessions are gone", func() error {
		if n := r.proxy.Stats()[0].Sessions; n != 1 {
			return fmt.Errorf("%d are left", n)
		}

		if n := len(r.backend.calls(func(c call) bool { return c.http == http.MethodDelete })); n != len(ids) {
			return fmt.Errorf("%d were ended on the backend", n)
		}

		return nil
	})

	if g := r.post(ids[0], callBody(1, "a")); !strings.Contains(g.body, "ran a") {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// TestConversations: what traffic shows of conversations is passed on.
func TestConversations(t *testing.T) {
	r := newRig(t)
	s := &stub{}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Method != methodList {
			return false
		}

		if m.Params.Cursor == "" {
			s.result(w, m, `{"tools":[],"nextCursor":"p2"}`)
		} else {
			s.result(w, m, `{"tools":[]}`)
		}

		return true
	}
	r.backend.start(process{handler: s})
	r.settled()

	const conv = "conv-1"

	post := func(session, body string) got {
		return r.do(t.Context(), http.MethodPost, "/c/"+conv+"/mcp", session, body)
	}

	id := post("", initBody).header.Get("Mcp-Session-Id")
	post(id, listBody(1))

	if _, listed, _ := r.convs.all(); len(listed) != 0 {
		t.Errorf("listed %v after the first page", listed)
	}

	post(id, `{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{"cursor":"p2"}}`)

	seen, listed, _ := r.convs.all()
	if len(seen) != 3 || seen[0] != (conversation.Sighting{ID: conv, Server: "default", Source: conversation.SourceURL}) {
		t.Errorf("seen %v", seen)
	}

	if len(listed) != 1 || listed[0].ID != conv || listed[0].Generation != 1 || !listed[0].Complete || !listed[0].Began.Before(listed[0].Ended) {
		t.Errorf("listed %v", listed)
	}

	// A page whose beginning wasn't seen says nothing.
	post(id, `{"jsonrpc":"2.0","id":3,"method":"tools/list","params":{"cursor":"p2"}}`)

	if _, listed, _ := r.convs.all(); len(listed) != 1 {
		t.Errorf("listed %v", listed)
	}

	for _, c := range r.backend.calls(func(call) bool { return true }) {
		if c.header.Get("X-OpenHands-ServerConversation-ID") != "" {
			t.Error("the backend saw the conversation's id")
		}
	}
}

// TestStoreAway: without its store the proxy goes on.
func TestStoreAway(t *testing.T) {
	r := newRig(t, func(_ *Config, d *Deps, _ *rig) { d.Blobs = brokenBlobs{} })
	r.backend.start(process{handler: &stub{prefix: "one-"}})

	id := r.initialize()
	r.settled()
	r.swap(process{handler: &stub{prefix: "two-"}})
	r.settled()

	if g := r.post(id, callBody(1, "x")); g.status != 200 || !strings.Contains(g.body, "ran x") {
		t.Errorf("%d %s", g.status, g.body)
	}

	r.do(t.Context(), http.MethodDelete, "/mcp", id, "")

	if g := r.post(id, callBody(1, "x")); g.status != 404 {
		t.Errorf("%d %s", g.status, g.body)
	}
}

type brokenBlobs struct{ BlobStore }

var errBroken = errors.New("the store is away")
