//go:build chaos && unix

package chaos

import (
	"fmt"
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

	w := newWorld(t, seed, "stateful", "stateless", "default")
	before := w.sidecar.taken()

	var workers []*agent
	var listeners []*listener
	for _, b := range w.backends {
		for n := range 4 {
			workers = append(workers, w.newAgent(b.mode, "worker", n))
		}
		for n := range 2 {
			a := w.newAgent(b.mode, "modern", n)
			a.caller.modern = true
			workers = append(workers, a)
		}
		for n := range 3 {
			a := w.newAgent(b.mode, "listener", n)
			a.caller.modern = n == 2
			listeners = append(listeners, &listener{agent: a, stream: a.caller, done: make(chan struct{})})
		}
	}
	var clients sync.WaitGroup
	for _, a := range workers {
		clients.Go(a.work)
	}
	for _, l := range listeners {
		clients.Go(l.run)
	}

	until := time.Now().Add(lasting)
	var monkeys sync.WaitGroup
	for _, b := range w.backends {
		monkeys.Go(func() { b.torment(until) })
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
	w.change(listeners)
	w.prove(workers, listeners)
	w.part(workers, listeners, before)
	for _, b := range w.backends {
		w.ledger.settle(b.mode, b.entries())
	}
	t.Log(w.ledger.summary())
	if n := w.ledger.results(); n < len(workers) {
		t.Errorf("there are %d results only: this has tested nothing", n)
	}
	w.ledger.report()
}

// prove shows that nobody is stuck.
func (w *world) prove(workers []*agent, listeners []*listener) {
	w.time.note("every client is to call and to list")
	var all sync.WaitGroup
	for _, a := range workers {
		all.Go(func() { a.prove(w.backend(a.server).version) })
	}
	for _, l := range listeners {
		all.Go(func() {
			l.prove(w.backend(l.server).version)
			l.start()
		})
	}
	all.Wait()
}

// change changes the version of every backend. Every listener must hear of it.
func (w *world) change(listeners []*listener) {
	w.t.Helper()
	told := map[*listener]int64{}
	for _, l := range listeners {
		told[l] = l.told.Load()
	}
	for _, b := range w.backends {
		if b.mode != "stateful" && b.rng.IntN(2) == 0 {
			b.offer(b.other())
			continue
		}
		b.end(syscall.SIGTERM)
		b.start(b.other())
	}
	w.waitSettled()
	deadline := time.Now().Add(soon)
	for _, l := range listeners {
		for l.told.Load() == told[l] && time.Now().Before(deadline) {
			time.Sleep(20 * time.Millisecond)
		}
		if l.told.Load() == told[l] {
			w.ledger.defect(nil, "%s was not told that the tools changed", l.name)
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
		a.caller.hangUp()
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
	for _, b := range w.backends {
		if b.mode != "stateful" { // the others keep none
			continue
		}
		proc.Eventually(w.t, "the sessions to be ended on the backend", func() bool { return b.sessions() <= 1 }) // the sidecar's own
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
