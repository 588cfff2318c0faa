package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestOldStatus: what is asked of the one address in the wrong way.
func TestOldStatus(t *testing.T) {
	r := oldRig(t, func(cfg *Config, _ *Deps, _ *rig) { cfg.MaxBody = 1000 })
	r.backend.start((&oldStub{}).process())

	alice, bob := token("i", "a", "1"), token("i", "b", "1")
	c := r.connect("/team/sse", "Authorization", alice)
	c.initialize(t, "Authorization", alice)

	for name, tt := range map[string]struct {
		method, path, body string
		header             []string
		status             int
		want               string
	}{
		"other transport":  {http.MethodPost, "/team/sse", oldInit, nil, 405, "GET"},
		"no session":       {http.MethodPost, "/team/sse?sessionId=", oldInit, nil, 405, "GET"},
		"DELETE":           {http.MethodDelete, c.post, "", nil, 405, "GET"},
		"unknown session":  {http.MethodPost, c.post + "x", callBody(7, "a"), nil, 404, `{"jsonrpc":"2.0","id":7,"error":{"code":-32001`},
		"malformed":        {http.MethodPost, "/team/sse?sessionId=%00", callBody(7, "a"), nil, 400, `-32600`},
		"somebody else's":  {http.MethodPost, c.post, callBody(7, "a"), []string{"Authorization", bob}, 404, `-32001`},
		"broken":           {http.MethodPost, c.post, `{"id":1`, nil, 400, `-32700`},
		"twice":            {http.MethodPost, c.post, `{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}`, nil, 400, `-32600`},
		"large":            {http.MethodPost, c.post, callBody(7, strings.Repeat("a", 1000)), nil, 413, `larger`},
		"foreign origin":   {http.MethodPost, c.post, callBody(7, "a"), []string{"Origin", "https://evil.example"}, 403, ``},
		"foreign, to open": {http.MethodGet, "/team/sse", "", []string{"Origin", "https://evil.example"}, 403, ``},
	} {
		t.Run(name, func(t *testing.T) {
			g := r.do(t.Context(), tt.method, tt.path, "", tt.body, tt.header...)
			if g.err != nil || g.status != tt.status || !strings.Contains(g.body, tt.want) {
				t.Errorf("%v %d %s", g.err, g.status, g.body)
			}

			if tt.status == 405 && g.header.Get("Allow") != "GET" {
				t.Error(g.header)
			}
		})
	}

	c.none(t)

	if n := r.backend.count(1, methodCall); n != 0 {
		t.Errorf("the backend got %d calls", n)
	}
}

// TestOldPassesOn: the backend's own answers to the requests of HTTP.
func TestOldPassesOn(t *testing.T) {
	stub := &oldStub{}
	r := oldRig(t)
	r.backend.start(process{handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get("Authorization") == "" {
			w.Header().Set("WWW-Authenticate", `Bearer resource_metadata="x"`)
			http.Error(w, "who are you?", http.StatusUnauthorized)

			return
		}

		switch body := bodyOf(req); {
		case strings.Contains(body, `"odd"`):
			http.Error(w, "not like this", http.StatusUnprocessableEntity)
		case strings.Contains(body, `"crash"`):
			http.Error(w, "<html>", http.StatusInternalServerError)
		default:
			stub.ServeHTTP(w, req)
		}
	})})

	g := r.do(t.Context(), http.MethodGet, "/team/sse", "", "", "Accept", "text/event-stream")
	if g.status != http.StatusUnauthorized || g.header.Get("WWW-Authenticate") == "" || !strings.Contains(g.body, "who") {
		t.Errorf("%d %v %s", g.status, g.header, g.body)
	}

	auth := []string{"Authorization", "Bearer a"}
	c := r.connect("/team/sse", auth...)
	c.initialize(t, auth...)

	if g := c.send(callBody(1, "a")); g.status != http.StatusUnauthorized || g.header.Get("WWW-Authenticate") == "" {
		t.Errorf("%d %v %s", g.status, g.header, g.body)
	}

	if g := c.send(callBody(2, "odd"), auth...); g.status != http.StatusUnprocessableEntity || !strings.Contains(g.body, "not like this") {
		t.Errorf("%d %s", g.status, g.body)
	}

	// A client that takes any 5xx for the end of everything gets none.
	c.request(callBody(3, "crash"), auth...)

	if _, code, data := c.response(t, 3); code != CodeInterrupted || data["reason"] != string(ReasonBackend) {
		t.Errorf("%d %v", code, data)
	}

	// The session is made again with the client's credentials.
	r.swap(r.backend.proc)
	c.request(callBody(4, "a"), auth...)
	c.response(t, 4)
}

func bodyOf(r *http.Request) string {
	body, _ := io.ReadAll(r.Body)
	r.Body = io.NopCloser(bytes.NewReader(body))

	return string(body)
}

// TestOldNoStream: an address without a stream is told, after it was tried a few
// times.
func TestOldNoStream(t *testing.T) {
	r := oldRig(t)
	r.backend.start(process{handler: http.NotFoundHandler()})
	r.settled()

	g := r.do(t.Context(), http.MethodGet, "/team/sse", "", "", "Accept", "text/event-stream")
	if g.status != http.StatusNotFound || !strings.Contains(g.body, "404 page not found") {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// TestOldClientLeaves: nothing stays of a client that is gone.
func TestOldClientLeaves(t *testing.T) {
	began := make(chan string, 1)
	stub := &oldStub{call: neverAnswers(began)}
	r := oldRig(t)
	r.backend.start(stub.process())

	c := r.connect("/team/sse")
	c.initialize(t)
	c.request(callBody(1, "a"))
	<-began
	c.cancel()

	eventually(t, "everything is gone", func() error {
		if st := r.proxy.Stats()[0]; stub.open() != 0 || st.Sessions != 0 || st.Streams != 0 {
			return fmt.Errorf("%d open, %+v", stub.open(), st)
		}

		return nil
	})

	if g := c.send(callBody(2, "a")); g.status != http.StatusNotFound {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// TestOldDrain: streams end at once, but for the answers that are still to come on
// them.
func TestOldDrain(t *testing.T) {
	release := make(chan struct{})
	began := make(chan string, 1)
	stub := &oldStub{call: func(s *oldSession, m stubMessage) {
		began <- m.Params.Name

		go func() {
			<-release
			s.result(m, `{"content":[]}`)
		}()
	}}

	r := oldRig(t)
	r.backend.start(stub.process())

	idle, busy := r.connect("/team/sse"), r.connect("/team/sse")
	idle.initialize(t)
	busy.initialize(t)
	busy.request(callBody(1, "a"))
	<-began

	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	drained := make(chan error, 1)

	go func() { drained <- r.proxy.Drain(ctx) }()

	idle.end(t)
	close(release)

	if _, code, _ := busy.response(t, 1); code != 0 {
		t.Error(code)
	}

	busy.end(t)

	if err := <-drained; err != nil {
		t.Error(err)
	}

	if g := r.do(t.Context(), http.MethodGet, "/team/sse", "", ""); g.status != http.StatusBadGateway {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// TestOldEvents: what else comes on a backend's stream.
func TestOldEvents(t *testing.T) {
	began := make(chan string, 1)
	stub := &oldStub{call: neverAnswers(began)}
	r := oldRig(t)
	r.backend.start(stub.process())

	c := r.connect("/team/sse")
	c.initialize(t)
	c.request(callBody(1, "a"))
	<-began

	backend := stub.any()
	large := `{"jsonrpc":"2.0","method":"notifications/message","params":{"data":"` + strings.Repeat("a", 1<<20) + `"}}`

	for _, tt := range []struct {
		event string
		gets  bool
	}{
		{`{"jsonrpc":"2.0","id":7,"result":{}}`, false}, // nobody asked
		{`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"m"}}`, true},
		{`{"jsonrpc":"2.0", "method":"notifications/message"}`, true},
		{`not JSON`, true},
		{large, true},
		{`[{"jsonrpc":"2.0","method":"notifications/message"},{"jsonrpc":"2.0","id":1,"result":{"n":9007199254740993}}]`, true},
		{`{"jsonrpc":"2.0","id":1,"result":{}}`, false}, // a second answer
		{`{"jsonrpc":"2.0","id":2,"method":"ping"}`, true},
	} {
		backend.send(tt.event)

		if tt.gets {
			if e := c.take(t); e != tt.event {
				t.Errorf("got %.100s, want %.100s", e, tt.event)
			}
		}
	}

	c.none(t)
}

func TestOldMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	r := oldRig(t, func(_ *Config, d *Deps, _ *rig) { d.Metrics = NewMetrics(reg) })
	r.backend.start((&oldStub{}).process())

	c := r.connect("/team/sse")
	c.initialize(t)
	r.settled()
	r.swap((&oldStub{}).process())
	c.request(callBody(1, "a"))
	c.response(t, 1)
	c.send(`{"jsonrpc":"2.0","method":"notifications/progress"}`)

	eventually(t, "all is counted", func() error {
		return testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP mcp_sidecar_proxy_requests_in_flight Requests of clients that are being served, listening streams left out.
# TYPE mcp_sidecar_proxy_requests_in_flight gauge
mcp_sidecar_proxy_requests_in_flight{server="default"} 0
# HELP mcp_sidecar_proxy_streams_in_flight Listening streams of clients that are open.
# TYPE mcp_sidecar_proxy_streams_in_flight gauge
mcp_sidecar_proxy_streams_in_flight{server="default"} 1
# HELP mcp_sidecar_session_reinitializations_total Sessions that the backend had lost, by what came of re-creating them.
# TYPE mcp_sidecar_session_reinitializations_total counter
mcp_sidecar_session_reinitializations_total{result="denied",server="default"} 0
mcp_sidecar_session_reinitializations_total{result="not_ready",server="default"} 0
mcp_sidecar_session_reinitializations_total{result="ok",server="default"} 1
mcp_sidecar_session_reinitializations_total{result="refused",server="default"} 0
# HELP mcp_sidecar_sessions Sessions of clients that are held in memory.
# TYPE mcp_sidecar_sessions gauge
mcp_sidecar_sessions{server="default"} 1
`), "mcp_sidecar_proxy_requests_in_flight", "mcp_sidecar_proxy_streams_in_flight",
			"mcp_sidecar_session_reinitializations_total", "mcp_sidecar_sessions")
	})
}

// TestOldQuiesce: a client that waits for the backend when the sidecar is about to
// go is told to try elsewhere.
func TestOldQuiesce(t *testing.T) {
	r := oldRig(t)
	done := make(chan got, 1)

	go func() { done <- r.do(t.Context(), http.MethodGet, "/team/sse", "", "") }()

	eventually(t, "the client waits", func() error {
		if r.proxy.Stats()[0].Streams != 1 {
			return errNotYet
		}

		return nil
	})
	r.proxy.Quiesce()

	if g := <-done; g.status != http.StatusBadGateway || g.header.Get("Retry-After") == "" {
		t.Errorf("%v %d %s", g.err, g.status, g.body)
	}
}
