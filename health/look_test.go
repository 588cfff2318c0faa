package health

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"
)

func TestFirstContact(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"b", "a"}}, func(b *bench) {
		b.want("ready")
		b.pass(b.cfg.Settle)
		b.want("settled [a b]")
		if got := b.counter("backend_up", "s"); got != 1 {
			t.Errorf("backend_up is %v", got)
		}
		b.pass(time.Hour)
		b.want()
		if n := b.count(func(w *world) int { return w.connects }); n != 1 {
			t.Errorf("%d handshakes in an hour", n)
		}
		if n := b.count(func(w *world) int { return w.lists }); n > 122 {
			t.Errorf("%d listings in an hour", n)
		}
	})
}

func TestBackendComesLater(t *testing.T) {
	inBubble(t, nil, nil, func(b *bench) {
		b.want("away refused")
		b.pass(time.Minute)
		b.want()
		b.start(&fakeProcess{tools: []string{"a"}})
		b.pass(250 * time.Millisecond)
		b.want("ready")
		b.pass(b.cfg.Settle)
		b.want("settled [a]")
	})
}

func TestRestart(t *testing.T) {
	for _, stateful := range []bool{false, true} {
		t.Run(fmt.Sprint("stateful ", stateful), func(t *testing.T) {
			inBubble(t, nil, &fakeProcess{tools: []string{"a"}, stateful: stateful}, func(b *bench) {
				b.pass(time.Minute)
				b.want("ready", "settled [a]")
				b.kill()
				b.want("away refused")
				b.pass(5 * time.Second)
				b.start(&fakeProcess{tools: []string{"a"}, stateful: stateful})
				// The port is looked at often enough that nobody notices the wait.
				b.pass(25 * time.Millisecond)
				b.want("ready swap:restart", "settled [a]")
				b.pass(time.Hour)
				b.want()
				if got := b.counter("swaps_total", CauseRestart, "s"); got != 1 {
					t.Errorf("swaps_total is %v", got)
				}
				if got := b.counter("schema_changes_total", ChangeByRestart, "s"); got != 0 {
					t.Errorf("schema_changes_total is %v though nothing changed", got)
				}
				if e := b.Current(); e.Epoch != 1 || e.Swap != nil {
					t.Errorf("current is %+v", e)
				}
			})
		})
	}
}

// A listener that is gone for a moment while the process lives, as a connection of before shows.
func TestRefusedButHeld(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.set(func(w *world) { w.deaf = true })
		b.pass(b.cfg.ProbeInterval)
		b.want("away refused")
		b.set(func(w *world) { w.deaf = false })
		b.pass(time.Second)
		b.want("ready", "settled [a]")
	})
}

func TestSlowIsNoSwap(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.set(func(w *world) { w.frozen = true })
		b.pass(2*b.cfg.ProbeInterval + b.cfg.ProbeTimeout) // two failures
		b.set(func(w *world) { w.frozen = false })
		b.pass(time.Minute)
		b.want()

		b.set(func(w *world) { w.frozen = true })
		b.pass(20 * time.Second)
		b.want("away timeout")
		b.set(func(w *world) { w.frozen = false })
		b.pass(2 * time.Second)
		b.want("ready", "settled [a]")
		if got := b.counter("backend_probes_failed_total", "ping", "timeout", "s"); got != 0 {
			t.Errorf("the fake doesn't count, yet there are %v", got)
		}
		if got := b.counter("backend_transitions_total", "s", "down"); got != 1 {
			t.Errorf("%v transitions to down", got)
		}
	})
}

func TestFlappingIsNoSwap(t *testing.T) {
	for _, failing := range []Reason{ReasonNotReady, ReasonTimeout, ReasonUnreachable} {
		t.Run(string(failing), func(t *testing.T) {
			p := &fakeProcess{tools: []string{"a"}, stateful: true}
			inBubble(t, nil, p, func(b *bench) {
				b.pass(time.Minute)
				b.want("ready", "settled [a]")
				flap := func() {
					for i := range 50 {
						b.set(func(*world) { p.failing = []Reason{failing, ""}[i%2] })
						b.pass(b.cfg.ProbeInterval)
					}
				}
				flap()
				b.want()
				b.kill()
				b.start(&fakeProcess{tools: []string{"a"}, stateful: true})
				b.pass(50 * time.Millisecond)
				flap()
				b.want("away refused", "ready swap:restart", "settled [a]")
			})
		})
	}
}

func TestPasses(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}, failing: ReasonNotReady}
	inBubble(t, func(c *Config) { c.Passes = 3 }, p, func(b *bench) {
		b.want("away not_ready")
		b.set(func(*world) { p.failing = "" })
		b.pass(time.Second)
		b.want("ready", "settled [a]")
		if n := b.count(func(w *world) int { return w.pings }); n < 2 {
			t.Errorf("only %d pings before", n)
		}
	})
}

// Nothing is refused when a new process takes over the socket of the old one.
func TestSessionLost(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"a"}, stateful: true}, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.start(&fakeProcess{tools: []string{"a", "b"}, stateful: true})
		b.pass(b.cfg.ProbeInterval)
		b.pass(b.cfg.Settle)
		b.want("ready swap:session_lost", "settled [a b] by restart")
		b.pass(time.Hour)
		b.want()
	})
}

func TestSessionLostBeforeReady(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}, stateful: true, failing: ReasonNotReady}
	inBubble(t, nil, &fakeProcess{tools: []string{"a"}, stateful: true}, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.start(p)
		b.Suspect("unknown session")
		synctest.Wait()
		b.want("away not_ready")
		b.set(func(*world) { p.failing = "" })
		b.pass(100 * time.Millisecond)
		b.want("ready swap:session_lost", "settled [a]")
	})
}

func TestSessionsThatNeverLast(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"a"}, stateful: true}, func(b *bench) {
		b.pass(time.Minute)
		for range 100 {
			b.start(&fakeProcess{tools: []string{"a"}, stateful: true}) // another worker
			b.pass(b.cfg.ProbeInterval)
		}
		if got := b.counter("swaps_total", CauseSessionLost, "s"); got > 2 {
			t.Errorf("%v swaps seen behind several workers", got)
		}
		// What else tells of a swap still does.
		b.kill()
		b.start(&fakeProcess{tools: []string{"a"}, stateful: true})
		b.pass(time.Second)
		if got := b.counter("swaps_total", CauseRestart, "s"); got != 1 {
			t.Errorf("%v restarts seen", got)
		}
	})
}

func TestIdentity(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}, identity: "1"}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.start(&fakeProcess{tools: []string{"a"}, identity: "2"})
		b.pass(b.cfg.ProbeInterval)
		b.want("ready swap:identity", "settled [a]")
		b.start(p) // the old one is still draining
		b.pass(b.cfg.ProbeInterval)
		b.want()
		b.start(&fakeProcess{tools: []string{"a"}}) // an answer without it says nothing
		b.pass(b.cfg.ProbeInterval)
		b.want()
	})
}

func TestIdentitiesThatTakeTurns(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"a"}, identity: "0"}, func(b *bench) {
		for i := range 200 {
			b.start(&fakeProcess{tools: []string{"a"}, identity: strconv.Itoa(i % 4)})
			b.pass(b.cfg.ProbeInterval)
		}
		if got := b.counter("swaps_total", CauseIdentity, "s"); got != 3 {
			t.Errorf("%v swaps of four workers that take turns", got)
		}
	})
}

// The connections ended and nothing was refused: only what the process says about itself can tell.
func TestLostConnections(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"a"}, version: "1"}, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.box.putLost()
		synctest.Wait()
		b.want()
		b.start(&fakeProcess{tools: []string{"a"}, version: "2"})
		b.box.putLost()
		synctest.Wait()
		b.want("ready swap:server_info", "settled [a]")
	})
}

// Something else holds the port open, and hangs up while there is no process.
func TestHangingUp(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.start(&fakeProcess{failing: ReasonReset})
		b.box.putLost()
		synctest.Wait()
		b.want("away reset")
		b.start(&fakeProcess{tools: []string{"a"}})
		b.pass(100 * time.Millisecond)
		b.want("ready swap:restart", "settled [a]")
	})
}

func TestUnauthorized(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}, failing: ReasonUnauthorized}
	inBubble(t, nil, p, func(b *bench) {
		b.want("ready", "settled unknown")
		b.pass(time.Minute)
		b.want()
		b.kill()
		b.start(p)
		b.pass(time.Second)
		b.want("away refused", "ready swap:restart", "settled unknown")
		b.set(func(*world) { p.failing = "" })
		b.pass(b.cfg.ProbeInterval + b.cfg.Settle)
		b.want("settled [a]")
		b.set(func(*world) { p.failing = ReasonUnauthorized })
		b.pass(time.Hour)
		b.want() // the last good list stays
	})
}

func TestSuspect(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.Suspect("test")
		synctest.Wait()
		b.want("settled [a]")

		// One that comes during a look wants another one.
		b.set(func(*world) { p.slow = 500 * time.Millisecond })
		b.Suspect("test")
		b.pass(100 * time.Millisecond)
		b.Suspect("test")
		b.pass(3 * time.Second)
		b.want("settled [a]", "settled [a]")

		b.set(func(w *world) { w.frozen, p.slow = true, 0 })
		b.Suspect("test")
		b.pass(2*b.cfg.ProbeTimeout - time.Millisecond)
		b.want("settled [a]") // nothing is known yet
		b.set(func(w *world) { w.frozen = false })

		b.set(func(w *world) { w.process = nil })
		b.Suspect("test")
		synctest.Wait()
		b.want("away refused")
		b.Suspect("test")
		synctest.Wait()
		b.want("away refused")
	})
}

func TestSuspectsDoNotListForever(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"a"}}, func(b *bench) {
		b.pass(time.Minute)
		before := b.count(func(w *world) int { return w.lists })
		for range 300 {
			b.Suspect("a client's session expired")
			b.pass(100 * time.Millisecond)
		}
		if n := b.count(func(w *world) int { return w.lists }) - before; n > 6 {
			t.Errorf("%d listings in 30 s", n)
		}
	})
}

func TestCheck(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.set(func(*world) { p.tools = []string{"a", "b"} })
		began := time.Now()
		e, err := b.Check(b.t.Context())
		if err != nil || e.State != Settled || len(e.Tools.Tools) != 2 || time.Since(began) != b.cfg.Settle {
			t.Errorf("got %+v, %v after %s", e, err, time.Since(began))
		}
		b.kill()
		if e, err := b.Check(b.t.Context()); err != nil || e.State != Away {
			t.Errorf("got %+v, %v", e, err)
		}
		b.start(&fakeProcess{}) // an empty list takes long to be believed
		ctx, cancel := context.WithTimeout(b.t.Context(), time.Second)
		defer cancel()
		if e, err := b.Check(ctx); !errors.Is(err, context.DeadlineExceeded) || e.State != Ready {
			t.Errorf("got %+v, %v", e, err)
		}
	})
}

func TestQuiesced(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"a"}}, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.SetQuiesced(true)
		b.kill()
		b.pass(time.Minute)
		b.want()
		b.Suspect("refused")
		synctest.Wait()
		b.want("settled [a]")
		b.pass(time.Minute)
		if e, err := b.Check(b.t.Context()); err != nil || e.State != Settled {
			t.Errorf("got %+v, %v", e, err)
		}
		b.want("settled [a]")
		b.SetQuiesced(false)
		synctest.Wait()
		b.want("away refused")
	})
}
