package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"
)

func TestForwarding(t *testing.T) {
	for name, opts := range map[string][]mcpserver.StreamableHTTPOption{
		"default":   nil,
		"stateful":  {mcpserver.WithStateful(true)},
		"stateless": {mcpserver.WithStateLess(true)},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.backend.start(mcpServer([]string{"a", "b"}, opts...))

			id := r.initialize()
			if g := r.post(id, listBody(1)); g.status != 200 || !strings.Contains(g.body, `"name":"a"`) {
				t.Errorf("list: %d %s", g.status, g.body)
			}

			if g := r.post(id, callBody(2, "b")); g.status != 200 || !strings.Contains(g.body, "ran b") {
				t.Errorf("call: %d %s", g.status, g.body)
			}

			for _, c := range r.backend.calls(func(c call) bool { return c.session == id }) {
				t.Errorf("the backend saw the client's session id in %s", c.method)
			}
		})
	}
}

func TestOneHandshakePerLostSession(t *testing.T) {
	r := newRig(t)
	r.backend.start(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))

	ids := []string{r.initialize(), r.initialize(), r.initialize()}
	r.settled()
	r.swap(mcpServer([]string{"a", "b"}, mcpserver.WithStateful(true)))

	var wg sync.WaitGroup

	for i := range 50 {
		for _, id := range ids {
			wg.Go(func() {
				g := r.post(id, listBody(i))
				if got, result, code, _ := g.rpc(t); g.status != 200 || got != strconv.Itoa(i) || code != 0 || !strings.Contains(string(result), `"b"`) {
					t.Errorf("list %d: %d %s", i, g.status, g.body)
				}
			})
		}
	}

	wg.Wait()

	if n := r.backend.count(2, methodInitialize); n != len(ids) {
		t.Errorf("%d initialize for %d sessions", n, len(ids))
	}

	// In each new backend session, initialized comes before everything else.
	first := map[string]string{}

	for _, c := range r.backend.calls(func(c call) bool { return c.epoch == 2 && c.session != "" }) {
		if _, ok := first[c.session]; !ok {
			first[c.session] = c.method
		}
	}

	begun := 0

	for _, m := range first {
		if m == methodInitialized {
			begun++
		}
	}

	if n := r.backend.count(2, methodInitialized); n != len(ids) || begun != len(ids) {
		t.Errorf("%d initialized, in %d sessions the first message", n, begun)
	}

	for _, c := range r.backend.calls(func(c call) bool { return c.epoch == 2 && c.method == methodInitialize }) {
		if !strings.Contains(c.body, `"params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"test","version":"1"}}`) {
			t.Errorf("initialize changed: %s", c.body)
		}
	}
}

func TestRequestsWaitWhileAway(t *testing.T) {
	r := newRig(t)
	r.backend.start(mcpServer([]string{"a"}))

	id := r.initialize()
	r.settled()
	r.backend.kill()

	var wg sync.WaitGroup

	for i := range 100 {
		wg.Go(func() {
			g := r.post(id, callBody(i, "a"))
			if got, _, code, _ := g.rpc(t); got != strconv.Itoa(i) || code != 0 {
				t.Errorf("call %d: %d %s", i, g.status, g.body)
			}
		})
	}

	eventually(t, "requests are held", func() error {
		if n := r.proxy.Stats()[0].Held; n != 100 {
			return fmt.Errorf("%d are", n)
		}

		return nil
	})

	r.backend.start(mcpServer([]string{"a"}))
	wg.Wait()

	if n := r.backend.count(2, methodCall); n != 100 {
		t.Errorf("%d calls reached the backend", n)
	}
}

func TestHoldEnds(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) {
		c.Servers[0].Hold, c.Servers[0].HoldCall = 50*time.Millisecond, 100*time.Millisecond
	})
	r.backend.start(mcpServer([]string{"a"}))

	id := r.initialize()
	r.settled()
	r.backend.kill()

	for _, body := range []string{callBody(7, "a"), listBody(7), strings.Replace(initBody, `"id":0`, `"id":7`, 1)} {
		g := r.post(id, body)
		if got, _, code, data := g.rpc(t); g.status != 200 || got != "7" || code != CodeBackendAway || data["retryable"] != true || data["mayHaveExecuted"] != false || data["reason"] != string(ReasonAway) {
			t.Errorf("%s: %d %s", body, g.status, g.body)
		}
	}
}

func TestTooManyHeld(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.MaxHeld = 2 })
	r.backend.start(mcpServer([]string{"a"}))

	id := r.initialize()
	r.settled()
	r.backend.kill()

	ctx, cancel := context.WithCancel(t.Context())

	var wg sync.WaitGroup

	for i := range 2 {
		wg.Go(func() { r.do(ctx, http.MethodPost, "/mcp", id, callBody(i, "a")) })
	}

	eventually(t, "requests are held", func() error {
		if n := r.proxy.Stats()[0].Held; n != 2 {
			return fmt.Errorf("%d are", n)
		}

		return nil
	})

	g := r.post(id, callBody(9, "a"))
	if got, _, code, data := g.rpc(t); g.status != 200 || got != "9" || code != CodeTooManyHeld || data["reason"] != string(ReasonTooMany) {
		t.Errorf("excess: %d %s", g.status, g.body)
	}

	cancel()
	wg.Wait()
	eventually(t, "abandoned requests leave", func() error {
		if n := r.proxy.Stats()[0].Held; n != 0 {
			return fmt.Errorf("%d are held", n)
		}

		return nil
	})

	r.backend.start(mcpServer([]string{"a"}))
	r.settled()

	if n := r.backend.count(2, methodCall); n != 0 {
		t.Errorf("%d abandoned calls reached the backend", n)
	}
}

func TestCancelledWhileHeld(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.Servers[0].Hold = time.Hour })
	r.backend.start(mcpServer([]string{"a"}))

	id := r.initialize()
	r.settled()
	r.backend.kill()

	ended := make(chan got, 1)

	go func() { ended <- r.do(t.Context(), http.MethodPost, "/mcp", id, callBody(5, "a")) }()

	eventually(t, "the request is held", func() error {
		if n := r.proxy.Stats()[0].Held; n != 1 {
			return fmt.Errorf("%d are", n)
		}

		return nil
	})

	if g := r.post(id, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":5}}`); g.status != 202 {
		t.Errorf("cancelled: %d %s", g.status, g.body)
	}

	if g := <-ended; g.status != 202 || g.body != "" {
		t.Errorf("the cancelled request got %d %s", g.status, g.body)
	}

	// Without a session it can't be about a request that is held: there is nothing to cancel.
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()

	if g := r.do(soon, http.MethodPost, "/mcp", "", `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":6}}`); g.status != 202 {
		t.Errorf("cancelled without a session: %d %s", g.status, g.body)
	}

	r.backend.start(mcpServer([]string{"a"}))
	r.settled()

	if n := r.backend.count(2, methodCall) + r.backend.count(2, methodCancelled); n != 0 {
		t.Errorf("%d messages reached the backend", n)
	}
}

// TestSignOfLife: a held request gets its header and comments, and then the answer
// as an event.
func TestSignOfLife(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) {
		c.HeldComment, c.KeepAlive = 20*time.Millisecond, 20*time.Millisecond
	})
	r.backend.start(mcpServer([]string{"a"}))

	id := r.initialize()
	r.settled()
	r.backend.kill()

	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.front.URL+"/mcp", strings.NewReader(callBody(5, "a")))
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("Mcp-Session-Id", id)

	resp, err := r.front.Client().Do(req) // returns with the header
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	events := newEventReader(resp.Body, maxEvent)

	ev, err := events.Next()
	if err != nil || !ev.isComment() {
		t.Fatalf("first: %q %v", ev.raw, err)
	}

	r.backend.start(mcpServer([]string{"a"}))

	for {
		ev, err := events.Next()
		if err != nil {
			t.Fatal(err)
		}

		if !ev.isComment() {
			if !strings.Contains(string(ev.data), "ran a") || !strings.Contains(string(ev.data), `"id":5`) {
				t.Errorf("answer: %s", ev.data)
			}

			break
		}
	}

	if ev, err := events.Next(); err == nil {
		t.Errorf("after the answer: %q", ev.raw)
	}
}

func TestListWaitsForSettled(t *testing.T) {
	r := newRig(t)
	r.backend.start(mcpServer([]string{"a"}))

	id := r.initialize()
	r.settled()

	settle := r.grow()
	defer settle()

	r.swap(mcpServer([]string{"a", "b"}))
	r.suspect("", "test")
	eventually(t, "the gate learns of the swap", func() error {
		if v := r.proxy.current.Load().servers["default"].gate.look(); v.state.Epoch != 2 {
			return fmt.Errorf("epoch %d", v.state.Epoch)
		}

		return nil
	})

	if g := r.post(id, callBody(1, "a")); !strings.Contains(g.body, "ran a") {
		t.Errorf("call: %s", g.body)
	}

	answer := make(chan got, 1)

	go func() { answer <- r.do(t.Context(), http.MethodPost, "/mcp", id, listBody(2)) }()

	eventually(t, "the list is held", func() error {
		if n := r.proxy.Stats()[0].Held; n != 1 {
			return fmt.Errorf("%d are", n)
		}

		return nil
	})

	if n := r.backend.count(2, methodList); n != 0 {
		t.Errorf("%d lists before the settled one", n)
	}

	settle()

	if g := <-answer; !strings.Contains(g.body, `"b"`) {
		t.Errorf("list: %s", g.body)
	}
}

// TestDeadPooledConnections: the first request after a swap finds nothing but
// connections to the process before.
func TestDeadPooledConnections(t *testing.T) {
	r := newRig(t)
	r.backend.start(mcpServer([]string{"a"}))

	id := r.initialize()
	r.settled()

	for round := range 10 {
		var wg sync.WaitGroup

		for i := range 20 {
			wg.Go(func() { r.post(id, callBody(i, "a")) })
		}

		wg.Wait()
		r.swap(mcpServer([]string{"a"}))
		eventually(t, "the kernel has the end of all connections", func() error {
			p, ok := r.proxy.own.(*pool)
			if !ok {
				t.Fatalf("%T", r.proxy.own)
			}

			p.mu.Lock()
			defer p.mu.Unlock()

			for _, conns := range p.idle {
				if slices.ContainsFunc(conns, func(c *poolConn) bool { return c.pulse.alive() }) {
					return errors.New("not of all")
				}
			}

			return nil
		})

		if g := r.post(id, callBody(99, "a")); g.status != 200 || !strings.Contains(g.body, "ran a") {
			t.Fatalf("round %d: %d %s", round, g.status, g.body)
		}
	}
}

// TestSignOfLifeForInitialize: the header that a waiting client gets names a
// session that is good once the backend is there, also for a successor.
func TestSignOfLifeForInitialize(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) {
		c.HeldComment, c.KeepAlive = 20*time.Millisecond, 20*time.Millisecond
	})
	r.settledAway()

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, r.front.URL+"/mcp", strings.NewReader(initBody))
	if err != nil {
		t.Fatal(err)
	}

	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")

	resp, err := r.front.Client().Do(req) // returns with the header
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	id := resp.Header.Get("Mcp-Session-Id")
	if id == "" {
		t.Fatal("no session id")
	}

	r.backend.start(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))

	body, err := io.ReadAll(resp.Body)
	if err != nil || strings.Count(string(body), `"listChanged":true`) < 1 {
		t.Errorf("%s %v", body, err)
	}

	r.post(id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)

	for range 2 {
		if g := r.post(id, callBody(1, "a")); !strings.Contains(g.body, "ran a") {
			t.Errorf("%d %s", g.status, g.body)
		}

		r.build()
		r.settled()
	}

	if n := r.backend.count(1, methodInitialize); n != 1 {
		t.Errorf("%d initialize", n)
	}
}

// settledAway waits until it is known that the backend is away.
func (r *rig) settledAway() {
	r.t.Helper()
	eventually(r.t, "it is known that the backend is away", func() error {
		if v := r.proxy.current.Load().servers["default"].gate.look(); v.state.Phase != Away {
			return fmt.Errorf("phase %v", v.state.Phase)
		}

		return nil
	})
}

// TestWithoutHealth: requests find out by themselves, also when verdicts were
// promised and none comes.
func TestWithoutHealth(t *testing.T) {
	for name, opt := range map[string]rigOption{
		"nobody":  func(_ *Config, d *Deps, r *rig) { d.Suspect, r.blind = nil, true },
		"nothing": func(_ *Config, _ *Deps, r *rig) { r.blind = true },
	} {
		t.Run(name, func(t *testing.T) {
			if testing.Short() && name == "nothing" {
				t.Skip("it waits for verdicts that never come")
			}

			r := newRig(t, opt)
			r.backend.start(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))

			id := r.initialize()
			l := r.listen(id)
			r.backend.kill()

			var wg sync.WaitGroup

			for i := range 5 {
				wg.Go(func() {
					if g := r.post(id, callBody(i, "a")); !strings.Contains(g.body, "ran a") {
						t.Errorf("%d %s", g.status, g.body)
					}
				})
			}

			eventually(t, "requests are held", func() error {
				if n := r.proxy.Stats()[0].Held; n == 0 {
					return fmt.Errorf("%d are", n)
				}

				return nil
			})

			r.backend.start(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))
			wg.Wait()

			if g := r.post(id, listBody(1)); !strings.Contains(g.body, `"a"`) {
				t.Errorf("list: %s", g.body)
			}

			eventually(t, "the stream is open again", func() error {
				if n := len(r.backend.calls(func(c call) bool { return c.epoch == 2 && c.http == http.MethodGet })); n == 0 {
					return fmt.Errorf("%d are", n)
				}

				return nil
			})
			l.none(t)
		})
	}
}
