package proxy

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// TestRefusedSubscription: what the sidecar can't serve is the backend's answer.
func TestRefusedSubscription(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &subscriptionStub{}})

	g := r.modern("5", methodListen, `"notifications":{"promptsListChanged":true}`)
	if g.status != http.StatusNotFound || g.body != `{"jsonrpc":"2.0","id":5,"error":{"code":-32601,"message":"Method not found"}}` {
		t.Errorf("got %d %s", g.status, g.body)
	}

	// It promises nothing, and ends it.
	next := &subscriptionStub{filter: `{}`}
	r.swap(process{handler: next})

	l := r.subscribe("6", `{"resourcesListChanged":true}`)
	l.acked(t, "6")
	next.opened(t, 1)
	next.send(`{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","_meta":{`+keySubscription+`:ID},"x":1e2}}`, "")
	l.next(t, `"x":1e2`)
	l.end(t)
}

// TestGracefulEndOfBackend: a server that is stopped may end its subscriptions,
// after which many clients would never hear of anything again.
func TestGracefulEndOfBackend(t *testing.T) {
	r := newRig(t)
	first := &subscriptionStub{filter: toolsOnly}
	r.backend.start(process{handler: first, tools: tools("a")})
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	// What it leaves open is closed.
	first.send(`{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","_meta":{` + keySubscription + `:ID}}}`)
	first.opened(t, 2)
	first.closed(t, 1)
	first.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":ID}}`, "")
	first.opened(t, 3)
	first.send("") // ends without a word
	first.opened(t, 4)

	r.swap(process{handler: &subscriptionStub{filter: toolsOnly}, tools: tools("b")})
	l.changed(t, "1")
	l.none(t)
}

func TestStormOfNotices(t *testing.T) {
	r := newRig(t)
	s := &subscriptionStub{filter: toolsOnly}
	r.backend.start(process{handler: s, tools: tools("a")})
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	for range 200 {
		s.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{` + keySubscription + `:ID}}}`)
	}

	s.send(`{"jsonrpc":"2.0","method":"notifications/other"}`)

	// Everything before it has been read by now, and is told at last.
	notices := 0

	for seen := false; !seen || notices == 0; {
		switch m := l.message(t); m.Method {
		case methodListChanged:
			notices++
		default:
			seen = true
		}
	}

	if notices > 3 {
		t.Errorf("%d notices", notices)
	}
}

// TestLoopOfNotices: a server that gives notice of every listing, and a client that
// lists after every notice.
func TestLoopOfNotices(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.NoticeQuiet = 20 * time.Millisecond })
	s := &subscriptionStub{filter: toolsOnly}
	s.list = func() { s.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) }
	r.backend.start(process{handler: s, tools: tools("a")})
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")
	s.opened(t, 1)

	rounds := 0

	for quiet := false; !quiet && rounds < 10; {
		r.modern("2", methodList, "")

		rounds++

		select {
		case <-l.events:
		case <-time.After(noticeCause):
			quiet = true
		}
	}

	if rounds > 3 {
		t.Errorf("%d rounds", rounds)
	}
}

func TestHeldSubscription(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.HeldComment, c.KeepAlive = time.Millisecond, 10*time.Millisecond })
	_, first := liveServer("a")
	r.backend.start(first)
	r.settled()
	r.backend.kill()

	l := r.subscribe("1", toolsOnly) // has its header although nobody is there
	l.none(t)

	_, next := liveServer("b")
	r.backend.start(next)

	l.acked(t, "1")
	l.changed(t, "1") // what happened while it was held
	l.none(t)
}

func TestSubscriptionHeldInVain(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.Servers[0].Hold = 50 * time.Millisecond })

	g := r.modern("1", methodListen, `"notifications":`+toolsOnly)
	if id, _, code, _ := g.rpc(t); g.status != http.StatusOK || id != "1" || code != CodeBackendAway {
		t.Errorf("got %d %s", g.status, g.body)
	}
}

// TestSubscriptionsEndWithTheSidecar: clients subscribe elsewhere.
func TestSubscriptionsEndWithTheSidecar(t *testing.T) {
	m := NewMetrics(nil)
	r := newRig(t, func(_ *Config, d *Deps, _ *rig) { d.Metrics = m })
	_, p := liveServer("a")
	r.backend.start(p)
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	gauges := func() string {
		return fmt.Sprint(r.proxy.Stats()[0].Streams, testutil.ToFloat64(m.streams), testutil.ToFloat64(m.inFlight))
	}

	eventually(t, "it is counted", func() error { // after the client has its acknowledgement
		if g := gauges(); g != "1 1 0" {
			return fmt.Errorf("streams and requests: %s", g)
		}

		return nil
	})

	r.proxy.Quiesce()
	l.over(t, "1")

	// Until the end it is served all the same.
	l = r.subscribe("2", toolsOnly)
	l.acked(t, "2")

	if err := r.proxy.Drain(t.Context()); err != nil {
		t.Error(err)
	}

	l.over(t, "2")

	l = r.subscribe("3", toolsOnly)
	l.acked(t, "3")
	l.over(t, "3")

	if g := gauges(); g != "0 0 0" {
		t.Errorf("streams and requests: %s", g)
	}
}

// TestRevokedSubscription: the client learns why from the answer to its next
// request.
func TestRevokedSubscription(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter) bool{
		"credentials": func(w http.ResponseWriter) bool { http.Error(w, "no", http.StatusUnauthorized); return true },
		"revision": func(w http.ResponseWriter) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no"}}`)

			return true
		},
		"not found": func(w http.ResponseWriter) bool { http.Error(w, "no", http.StatusNotFound); return true },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.backend.start(process{handler: &subscriptionStub{filter: toolsOnly}, tools: tools("a")})
			r.settled()

			l := r.subscribe("1", toolsOnly)
			l.acked(t, "1")

			r.swap(process{handler: &subscriptionStub{refuse: refuse}, tools: tools("b")})
			l.changed(t, "1")
			l.over(t, "1")
		})
	}
}

// TestSubscriptionOutlivesStart: a process that isn't ready is asked again.
func TestSubscriptionOutlivesStart(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &subscriptionStub{filter: toolsOnly}, tools: tools("a")})
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	var (
		mu    sync.Mutex
		tries int
	)

	next := &subscriptionStub{filter: toolsOnly, refuse: func(w http.ResponseWriter) bool {
		mu.Lock()
		defer mu.Unlock()

		if tries++; tries > 3 {
			return false
		}

		http.Error(w, "starting", http.StatusServiceUnavailable)

		return true
	}}
	r.swap(process{handler: next, tools: tools("a")})
	r.settled()
	next.opened(t, 1)
	next.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	l.changed(t, "1")
	l.none(t)
}

// TestLeavingCancels: in this revision that cancels.
func TestLeavingCancels(t *testing.T) {
	r := newRig(t)
	s := &subscriptionStub{filter: toolsOnly}
	entered, left := make(chan struct{}), make(chan struct{})

	r.backend.start(process{handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(body))

		if !bytes.Contains(body, []byte(methodCall)) {
			s.ServeHTTP(w, req)
			return
		}

		close(entered)
		<-req.Context().Done()
		close(left)
	})})

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")
	l.cancel()
	s.closed(t, 1)

	ctx, cancel := context.WithCancel(t.Context())

	go func() {
		<-entered
		cancel()
	}()

	if g := r.do(ctx, http.MethodPost, "/mcp", "", modernBody("2", methodCall, `"name":"a"`), modernHeader(methodCall)...); g.err == nil {
		t.Errorf("got %d %s", g.status, g.body)
	}

	<-left

	eventually(t, "nothing is left", func() error {
		if n := r.proxy.Stats()[0].Streams; n != 0 {
			return fmt.Errorf("%d streams", n)
		}

		return nil
	})
}
