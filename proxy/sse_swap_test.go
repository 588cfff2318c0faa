package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// neverAnswers keeps calls waiting.
func neverAnswers(began chan<- string) func(*oldSession, stubMessage) {
	return func(_ *oldSession, m stubMessage) { began <- m.Params.Name }
}

// TestOldSwap: the same stream and address serve the client after a swap, the call
// that was running ends with an error, and the new process sees a whole handshake
// before anything else.
func TestOldSwap(t *testing.T) {
	began := make(chan string, 10)
	first, second := &oldStub{call: neverAnswers(began)}, &oldStub{}

	r := oldRig(t)
	r.backend.start(first.process(ToolHints{Name: "a", Digest: "1"}))

	c := r.connect("/team/sse")
	c.initialize(t)
	c.request(`{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"debug"}}`)
	c.response(t, 1)

	for i, uri := range []string{"a:1", "a:2", "a:3"} {
		c.request(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":%q}}`, 2+i, uri))
		c.response(t, 2+i)
	}

	c.request(callBody(9, "a"))
	<-began

	r.settled()
	r.backend.kill()

	if _, code, data := c.response(t, 9); code != CodeInterrupted || data["mayHaveExecuted"] != true {
		t.Errorf("%d %v", code, data)
	}

	// What comes while nobody is there is accepted, and waits.
	c.request(callBody(10, "b"))
	eventually(t, "the call is held", func() error {
		if st := r.proxy.Stats()[0]; st.Held != 1 || st.Sessions != 1 || st.Streams != 1 {
			return fmt.Errorf("%+v", st)
		}

		return nil
	})

	r.backend.start(second.process(ToolHints{Name: "a", Digest: "2"}))

	events := []string{c.take(t), c.take(t)}
	slices.Sort(events)

	if !strings.Contains(events[0], `"id":10,"result"`) || !strings.Contains(events[1], methodListChanged) {
		t.Error(events)
	}

	c.none(t)

	want := []string{
		"initialize", "notifications/initialized", "logging/setLevel",
		"resources/subscribe", "resources/subscribe", "resources/subscribe", "tools/call",
	}
	if diff := cmp.Diff(want, second.got()); diff != "" {
		t.Error(diff)
	}

	inits := r.backend.calls(func(c call) bool { return c.method == methodInitialize && c.epoch == 2 })
	if len(inits) != 1 || !strings.Contains(inits[0].body, `"params":{"protocolVersion":"2024-11-05","capabilities":{"roots":{}},"clientInfo":{"name":"test","version":"1"}}`) {
		t.Errorf("%+v", inits)
	}

	if n := r.backend.count(2, "tools/call"); n != 1 {
		t.Errorf("%d calls", n)
	}
}

// TestOldReplay: what only reads, or says that it may run twice, is sent again.
func TestOldReplay(t *testing.T) {
	began := make(chan string, 10)

	idempotent := ToolHints{Name: "again", Digest: "1", Idempotent: true}
	first, second := &oldStub{call: neverAnswers(began)}, &oldStub{}

	r := oldRig(t)
	r.backend.start(first.process(idempotent, ToolHints{Name: "other", Digest: "1", Idempotent: true}))
	r.settled()

	c := r.connect("/team/sse")
	c.initialize(t)

	for i, body := range []string{callBody(1, "again"), callBody(2, "other"), `{"jsonrpc":"2.0","id":3,"method":"prompts/get","params":{"name":"p"}}`} {
		c.request(body)

		if <-began; i == 2 {
			r.swap(second.process(idempotent, ToolHints{Name: "other", Digest: "2", Idempotent: true}))
		}
	}

	outcomes := map[int]string{}

	for len(outcomes) < 3 {
		e := c.take(t)
		for id := range 4 {
			if strings.Contains(e, fmt.Sprintf(`"id":%d,`, id)) {
				outcomes[id] = "ran"
				if strings.Contains(e, "-31002") {
					outcomes[id] = "interrupted"
				}
			}
		}
	}

	if diff := cmp.Diff(map[int]string{1: "ran", 2: "interrupted", 3: "ran"}, outcomes); diff != "" {
		t.Error(diff)
	}
}

// TestOldInitializeInterrupted: a process that ends while it initialises a client
// doesn't cost the client its session.
func TestOldInitializeInterrupted(t *testing.T) {
	r := oldRig(t)

	began := make(chan struct{})
	mute := http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Method == http.MethodPost {
			w.WriteHeader(http.StatusAccepted)
			close(began)

			return
		}

		(&oldStub{}).stream(w, req)
	})
	r.backend.start(process{handler: mute})

	c := r.connect("/team/sse")
	c.request(oldInit)
	<-began

	second := &oldStub{}
	r.swap(second.process())
	c.next(t, `"protocolVersion"`)
	c.request(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.request(callBody(1, "a"))
	c.response(t, 1)

	if want := []string{"initialize", "notifications/initialized", "tools/call"}; !cmp.Equal(second.got(), want) {
		t.Error(second.got())
	}
}

// TestOldInitializedLate: what the client says after its session was re-created in
// its name is not said twice, and nothing overtakes it.
func TestOldInitializedLate(t *testing.T) {
	r := oldRig(t)
	r.backend.start((&oldStub{}).process())

	c := r.connect("/team/sse")
	c.request(oldInit)
	c.next(t, `"protocolVersion"`)
	r.settled()
	r.backend.kill()
	eventually(t, "the backend's stream ended", func() error {
		if l, _ := r.old(t).way(nil); l != nil {
			return errNotYet
		}

		return nil
	})

	c.request(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	c.request(callBody(1, "a"))

	second := &oldStub{}
	r.backend.start(second.process())
	c.response(t, 1)

	if want := []string{"initialize", "notifications/initialized", "tools/call"}; !cmp.Equal(second.got(), want) {
		t.Error(second.got())
	}

	r.settled()
	r.swap((&oldStub{}).process(ToolHints{Name: "new"}))
	c.next(t, methodListChanged) // whoever is initialised is told
}

// old returns the only session.
func (r *rig) old(t *testing.T) (s *sseSession) {
	t.Helper()

	r.proxy.current.Load().servers["default"].sse.Range(func(_, v any) bool {
		s, _ = v.(*sseSession)
		return false
	})

	if s == nil {
		t.Fatal("there is no session")
	}

	return s
}

// TestOldFence: an answer to the old process doesn't reach the new one, whose
// requests have the same ids.
func TestOldFence(t *testing.T) {
	first, second := &oldStub{}, &oldStub{}

	const ask, answer = `{"jsonrpc":"2.0","id":1,"method":"roots/list"}`, `{"jsonrpc":"2.0","id":1,"result":{"roots":[{"uri":"file:///%s"}]}}`

	r := oldRig(t)
	r.backend.start(first.process())

	c := r.connect("/team/sse")
	c.initialize(t)
	first.any().send(ask)
	c.next(t, "roots/list")
	r.swap(second.process())
	eventually(t, "the session is back", func() error {
		if !slices.Contains(second.got(), methodInitialized) {
			return errNotYet
		}

		return nil
	})

	c.request(fmt.Sprintf(answer, "old"))
	second.any().send(ask)
	c.next(t, "roots/list")
	c.request(fmt.Sprintf(answer, "new"))

	eventually(t, "the answer came", func() error {
		var bodies []string

		for _, c := range r.backend.calls(func(c call) bool { return strings.Contains(c.body, "file:///") }) {
			bodies = append(bodies, fmt.Sprint(c.epoch, c.body))
		}

		if len(bodies) == 0 {
			return errNotYet
		}

		if len(bodies) != 1 || !strings.Contains(bodies[0], "new") {
			t.Fatalf("the backends got %v", bodies)
		}

		return nil
	})
}

// TestOldRefused: a new process that the client can't go on with ends its stream.
func TestOldRefused(t *testing.T) {
	for name, second := range map[string]*oldStub{
		"other version": {version: "2025-03-26"},
		"third host": {address: func(_ *http.Request, id string) string {
			return "http://third.example/message?sessionId=" + id
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := oldRig(t)
			r.backend.start((&oldStub{}).process())

			c := r.connect("/c/conversation-1/team/sse")
			c.initialize(t)
			r.settled()
			r.backend.kill()
			c.request(callBody(1, "a"))
			r.backend.start(second.process())

			c.end(t)
			close(c.events)

			var events []string
			for e := range c.events {
				events = append(events, e)
			}

			if got := strings.Join(events, "\n"); !strings.Contains(got, `"id":1,"error"`) || strings.Contains(got, "third") {
				t.Error(got)
			}

			if g := c.send(callBody(2, "a")); g.status != http.StatusNotFound || !strings.Contains(g.body, "-32001") {
				t.Errorf("%d %s", g.status, g.body)
			}

			if _, _, lost := r.convs.all(); (len(lost) == 1) != (name == "other version") {
				t.Error(lost)
			}
		})
	}
}

// TestOldThirdHost: nothing is sent to a host that the endpoint event names, and
// the client is told.
func TestOldThirdHost(t *testing.T) {
	var asked atomic.Int32

	third := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	defer third.Close()

	for name, address := range map[string]string{
		"URL":        third.URL + "/message?sessionId=1",
		"network":    strings.TrimPrefix(third.URL, "http:") + "/message",
		"user":       "http://a@%s/message",
		"other kind": "ftp://%s/message",
		"no host":    "mailto:a",
		"broken":     "http://[::1",
		"empty":      "",
	} {
		t.Run(name, func(t *testing.T) {
			stub := &oldStub{address: func(r *http.Request, _ string) string { return strings.ReplaceAll(address, "%s", r.Host) }}

			r := oldRig(t)
			r.backend.start(stub.process())

			g := r.do(t.Context(), http.MethodGet, "/team/sse", "", "", "Accept", "text/event-stream")
			if g.err != nil || g.status != http.StatusBadGateway || !strings.Contains(g.body, "-31001") {
				t.Errorf("%v %d %s", g.err, g.status, g.body)
			}

			if asked.Load() != 0 || len(stub.got()) != 0 {
				t.Error("a message went out")
			}
		})
	}
}

// TestOldForgotten: a backend that forgot the session behind an open stream gets a
// new one, and the message that it refused.
func TestOldForgotten(t *testing.T) {
	stub := &oldStub{}

	r := oldRig(t)
	r.backend.start(stub.process())

	c := r.connect("/team/sse")
	c.initialize(t)
	stub.forget(stub.any().id)
	c.request(callBody(1, "a"))

	if result, _, _ := c.response(t, 1); !strings.Contains(result, "ran a") {
		t.Error(result)
	}

	if n := r.backend.count(1, methodInitialize); n != 2 {
		t.Errorf("%d initialize", n)
	}
}

func TestMessageURL(t *testing.T) {
	for _, tt := range []struct{ stream, ref, want string }{
		{"http://b:1/team/sse?key=1", "message?sessionId=1", "http://b:1/team/message?sessionId=1"},
		{"http://b:1/team/sse", "/message?sessionId=1", "http://b:1/message?sessionId=1"},
		{"http://b:1/team/sse/", "messages/?s=1#x", "http://b:1/team/sse/messages/?s=1"},
		{"http://b:1/team/sse", "?s=1", "http://b:1/team/sse?s=1"},
		{"http://b:1/sse", " http://B:1/a%2Fb?s=1\r", "http://b:1/a%2Fb?s=1"},
		{"http://b/sse", "http://b:80/m", "http://b/m"},
		{"http://127.0.0.1:9/sse", "http://localhost:9/m", "http://127.0.0.1:9/m"},
		{"http://127.0.0.1:9/sse", "http://127.0.0.2:9/m", ""},
		{"http://127.0.0.1:9/sse", "http://localhost:8/m", ""},
		{"http://b:1/sse", "//c/m", ""},
		{"http://b:1/sse", "javascript:1", ""},
		{"http://b:1/sse", "/" + strings.Repeat("a", maxAddress), ""},
	} {
		u, err := url.Parse(tt.stream)
		if err != nil {
			t.Fatal(err)
		}

		to, err := messageURL(&http.Request{URL: u, Host: u.Host}, tt.ref)
		if got := fmt.Sprint(to); tt.want == "" && err == nil || tt.want != "" && got != tt.want {
			t.Errorf("%.40q on %s: %v, want %v", tt.ref, tt.stream, to, tt.want)
		}
	}
}
