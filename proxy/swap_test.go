package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

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
