//go:build chaos && unix

package chaos

import (
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestVanish has clients begin a session and never come back. Nothing of them may stay; a client that only listens does.
func TestVanish(t *testing.T) {
	n := int(number(t, "CHAOS_CLIENTS", 2000))
	w := newWorld(t, 1, "stateful")
	b, _ := w.servers[0].(*backend)
	a := w.newAgent(b.mode, "listener", 0)
	l := newListener(a)
	if !l.start() {
		w.ledger.report()
		t.Fatal("there is no session")
	}
	l.caller.hangUp()
	first := w.vanish(n / 4) // what the process needs for so many it keeps
	w.waitGone()
	before := w.sidecar.taken()
	w.vanish(n)
	if got := b.sessions(); got < n/10 {
		t.Errorf("the backend has %d sessions: they don't live long enough for this to be a test", got)
	}
	w.waitGone()
	w.waitGiven(before)

	// One that comes back has its session, and so has the one that listened.
	if !first.call("balance") || !first.call("transfer") {
		t.Error("a client that came back late can't go on")
	}
	w.waitGone()
	inits := b.handshakes()
	told := l.told.Load()
	b.end(syscall.SIGKILL)
	b.start("v2")
	w.waitSettled()
	proc.Eventually(t, "the listener to be told", func() bool { return l.told.Load() > told })
	if again := b.handshakes() - inits; again > 5 { // the listener's, and some of the sidecar's own
		t.Errorf("after the swap there were %d handshakes, and one client", again)
	}
	l.prove("v2")
	l.close()
	l.caller.hangUp()
	first.caller.hangUp()
	w.ledger.settle(b.mode, b.entries())
	w.ledger.report()
}

// vanish lets n clients begin a session, and returns one of them.
func (w *world) vanish(n int) *agent {
	w.t.Helper()
	server := w.servers[0].at().name
	agents := make([]*agent, n)
	for i := range agents {
		agents[i] = w.newAgent(server, "gone", w.actors)
	}
	const atOnce = 16
	var all sync.WaitGroup
	for i := range atOnce {
		all.Go(func() {
			for j := i; j < n; j += atOnce {
				if !agents[j].handshake() {
					w.ledger.defect(nil, "%s gets no session", agents[j].name)
				}
				agents[j].caller.hangUp()
			}
		})
	}
	all.Wait()
	return agents[0]
}

// waitGone waits until only the listener's session is left, here and on the backend.
func (w *world) waitGone() {
	w.t.Helper()
	b, _ := w.servers[0].(*backend)
	proc.Eventually(w.t, "the sessions to be forgotten", func() bool { return w.sidecar.metric("mcp_sidecar_sessions") == 1 })
	proc.Eventually(w.t, "the sessions to be ended on the backend", func() bool { return b.sessions() <= 2 })
	time.Sleep(sessionIdle)
	if n := w.sidecar.metric("mcp_sidecar_sessions"); n != 1 {
		w.t.Errorf("there are %v sessions: the client that listens was forgotten, or another remembered", n)
	}
}

// handshakes is how often a session was begun.
func (b *backend) handshakes() int {
	n := 0
	for _, e := range b.entries() {
		if e.Event == "initialize" {
			n++
		}
	}
	return n
}
