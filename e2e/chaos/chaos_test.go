//go:build chaos && unix

package chaos

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// megabyte is a measure of memory.
const megabyte = 1 << 20

// growth is how much more memory the sidecar may have than before, in bytes: Go gives it back slowly.
func growth() float64 {
	if raceEnabled {
		return 250 * megabyte
	}
	return 40 * megabyte
}

// TestChaos lets everything fail, and then looks whether the books balance.
func TestChaos(t *testing.T) {
	seed := number(t, "CHAOS_SEED", uint64(time.Now().UnixNano()))
	lasting := duration(t)
	fmt.Printf("CHAOS_SEED=%d CHAOS_DURATION=%v\n", seed, lasting)

	w := newWorld(t, seed, "stateful", "stateless", "default", "sse", "stdio", "shared")
	before := w.sidecar.taken()
	workers, listeners := w.populate()
	var clients sync.WaitGroup
	for _, a := range workers {
		clients.Go(a.work)
	}
	for _, l := range listeners {
		clients.Go(l.run)
	}

	until := time.Now().Add(lasting)
	var monkeys sync.WaitGroup
	for _, s := range w.servers {
		monkeys.Go(func() { s.torment(until) })
	}
	w.actors++
	rng := random(seed, w.actors)
	monkeys.Go(func() { w.sidecar.torment(until, rng) })
	monkeys.Wait()
	close(w.over)
	clients.Wait()
	t.Log(w.ledger.summary())
	w.time.note("the clients have finished")

	w.waitSettled()
	w.prove(workers, listeners)
	w.change(workers, listeners)
	w.prove(workers, listeners)
	w.part(workers, listeners, before)
	w.stop()
	for _, s := range w.servers {
		w.ledger.settle(s.at().name, s.at().entries())
	}
	t.Log(w.ledger.summary())
	for server, n := range w.ledger.results() {
		t.Logf("results of %s: %v; what took longest:\n%s", server, n, strings.Join(w.ledger.slowest(server), "\n"))
		if n["transfer"] < len(workers) {
			t.Errorf("%s has transferred %d times only: this has tested nothing", server, n["transfer"])
		}
	}
	w.ledger.report()
}

// populate makes the clients, who aren't connected yet.
func (w *world) populate() (workers []*agent, listeners []*listener) {
	for _, s := range w.servers {
		name := s.at().name
		some := func(kind string, most int) {
			for n := range most {
				workers = append(workers, w.newAgent(name, kind, n))
			}
		}
		listening := 3
		switch name {
		case "sse": // who work have streams too
			some("worker", 4)
			continue
		case "stdio", "shared": // a process for each is a lot for a small machine
			some("worker", 2)
			some("batcher", 1)
			some("modern", 1)
			listening = 1
		default:
			some("worker", 3)
			some("batcher", 1)
			some("modern", 2)
		}
		for n := range listening {
			a := w.newAgent(name, "listener", n)
			a.caller.modern = n == 2
			listeners = append(listeners, newListener(a))
		}
	}
	return workers, listeners
}

// prove shows that nobody is stuck.
func (w *world) prove(workers []*agent, listeners []*listener) {
	w.time.note("every client is to call and to list")
	var all sync.WaitGroup
	for _, a := range workers {
		all.Go(func() { a.prove(w.server(a.server).at().version) })
	}
	for _, l := range listeners {
		all.Go(func() {
			l.prove(w.server(l.server).at().version)
			l.start()
		})
	}
	all.Wait()
}

// change changes the version of every server. All who have a stream must hear of it.
func (w *world) change(workers []*agent, listeners []*listener) {
	w.t.Helper()
	told := map[*agent]int64{}
	for _, l := range listeners {
		told[l.agent] = l.told.Load()
	}
	for _, a := range workers {
		if a.streams() {
			told[a] = a.told.Load()
		}
	}
	for _, s := range w.servers {
		s.change()
	}
	w.waitSettled()
	deadline := time.Now().Add(soon)
	for a, before := range told {
		for a.told.Load() == before && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
		if a.told.Load() == before {
			w.ledger.defect(nil, "%s was not told that the tools changed", a.name)
		}
	}
}

// part lets all clients leave, half of them without a word. The sidecar must give back what it took.
func (w *world) part(workers []*agent, listeners []*listener, before taken) {
	w.t.Helper()
	w.time.note("the clients leave")
	for i, a := range workers {
		if i%2 == 0 {
			a.leave()
		}
		a.hangUp()
	}
	for _, l := range listeners {
		l.close()
		l.caller.hangUp()
	}
	for _, name := range []string{
		"mcp_sidecar_sessions", "mcp_sidecar_proxy_streams_in_flight", "mcp_sidecar_held_requests", "mcp_sidecar_proxy_requests_in_flight",
	} {
		proc.Eventually(w.t, name+" to be 0", func() bool { return w.sidecar.metric(name) == 0 })
	}
	w.waitGiven(before)
	for _, s := range w.servers {
		s.waitLeft()
	}
}

// stop stops the sidecar, which must leave no process behind.
func (w *world) stop() {
	w.t.Helper()
	w.sidecar.end(syscall.SIGTERM)
	if code := w.sidecar.p.Wait(); code != 0 {
		w.t.Errorf("the sidecar ends with %d", code)
	}
	for _, s := range w.servers {
		if c, ok := s.(*command); ok {
			if left := c.processes(); len(left) > 0 {
				w.t.Errorf("the sidecar has left processes of %s behind: %v", c.name, left)
			}
		}
	}
}

// waitGiven waits until the sidecar has about as little as before.
func (w *world) waitGiven(before taken) {
	w.t.Helper()
	var now taken
	deadline := time.Now().Add(proc.Patience)
	for {
		if now = w.sidecar.taken(); now.within(before, growth()) {
			break
		}
		if time.Now().After(deadline) {
			w.t.Errorf("the sidecar has %+v, and had %+v before", now, before)
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	w.t.Logf("the sidecar had %+v before, and has %+v", before, now)
}
