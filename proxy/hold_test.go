package proxy

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"
)

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
