package health

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

func lists(w *world) int { return w.lists }

func TestKnownHashSettlesAtOnce(t *testing.T) {
	known := toolset(t, HashOptions{}, `{"name":"a"}`)
	inBubble(t, func(c *Config) { c.LastHash = known.Hash }, &fakeProcess{tools: []string{"a"}}, func(b *bench) {
		b.want("ready", "settled [a]")
		if n := b.count(lists); n != 1 {
			t.Errorf("%d listings", n)
		}
	})
}

func TestChangeWhileTheSidecarWasAway(t *testing.T) {
	known := toolset(t, HashOptions{}, `{"name":"a"}`, `{"name":"b"}`)
	inBubble(t, func(c *Config) { c.LastHash, c.LastTools = known.Hash, known.names() }, &fakeProcess{tools: []string{"a"}}, func(b *bench) {
		b.want("ready")
		b.pass(b.cfg.ShrinkGrace - time.Millisecond)
		b.want() // it may still be registering b
		b.pass(time.Millisecond)
		b.want("settled [a] by restart")
	})
}

// A server that starts: the port is closed, then the path isn't there, then there are no tools, then some, then all.
func TestStagedStart(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"a", "b"}}, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a b]")
		b.kill()
		b.pass(3 * time.Second)
		p := &fakeProcess{failing: ReasonNotReady}
		b.start(p)
		connects := b.count(func(w *world) int { return w.connects })
		b.pass(3 * time.Second)
		if n := b.count(func(w *world) int { return w.connects }) - connects; n > 60 {
			t.Errorf("%d handshakes in 3 s with a server that isn't ready", n)
		}
		b.set(func(*world) { p.failing = "" })
		b.pass(3 * time.Second)
		b.want("away refused", "ready swap:restart")
		b.set(func(*world) { p.tools = []string{"a"} })
		b.pass(time.Second)
		b.set(func(*world) { p.tools = []string{"a", "b", "c"} })
		b.pass(2 * time.Second)
		b.want("settled [a b c] by restart")
		b.pass(time.Hour)
		b.want()
		if got := b.counter("schema_changes_total", ChangeByRestart, "s"); got != 1 {
			t.Errorf("%v changes", got)
		}
	})
}

func TestServerWithoutTools(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"a"}}, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.kill()
		b.start(&fakeProcess{})
		b.pass(b.cfg.EmptyGrace - time.Second)
		b.want("away refused", "ready swap:restart")
		b.pass(2 * time.Second)
		b.want("settled [] by restart")
		b.pass(time.Hour)
		b.want()
	})
}

// In a running process tools may go for good at any time.
func TestRunningProcessDropsTools(t *testing.T) {
	p := &fakeProcess{tools: []string{"a", "b"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a b]")
		b.set(func(*world) { p.tools = nil })
		b.pass(b.cfg.ListInterval + b.cfg.Settle)
		b.want("settled [] by silent")
		if got := b.counter("schema_tools", "s"); got != 0 {
			t.Errorf("schema_tools is %v", got)
		}
	})
}

func TestListThatNeverSettles(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		i := 0
		b.set(func(w *world) {
			w.onList = func() {
				i++
				w.mu.Lock()
				defer w.mu.Unlock()
				p.tools = []string{fmt.Sprint("t", i%2)}
			}
		})
		b.pass(time.Minute)
		b.want()
		b.set(func(w *world) { w.onList = nil; p.tools = []string{"t"} })
		b.pass(time.Second)
		b.want("settled [t] by silent")
	})
}

func TestNoticeOfAChange(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.set(func(*world) { p.tools = []string{"a", "b"} })
		b.notice()
		b.pass(b.cfg.Settle + b.quiet())
		b.want("settled [a b] by list_changed")
	})
}

func TestNoticeStorm(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	for _, each := range []bool{false, true} {
		t.Run(fmt.Sprint("each is a change: ", each), func(t *testing.T) {
			inBubble(t, nil, p, func(b *bench) {
				b.pass(time.Minute + time.Second)
				b.want("ready", "settled [a]")
				before := b.count(lists)
				for i := range 200 {
					if each || i == 199 {
						b.set(func(w *world) { w.process = &fakeProcess{tools: []string{"a", fmt.Sprint("t", i)}} })
					}
					b.notice()
					b.pass(5 * time.Millisecond)
				}
				b.pass(3 * time.Second)
				b.want("settled [a t199] by list_changed")
				if n := b.count(lists) - before; n > 3 {
					t.Errorf("%d listings", n)
				}
			})
		})
	}
}

// Storms without end don't keep the last change from being seen.
func TestNoticesWithoutEnd(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.set(func(*world) { p.tools = []string{"a", "b"} })
		for range 700 {
			b.notice()
			b.pass(10 * time.Millisecond)
		}
		b.want("settled [a b] by list_changed")
	})
}

// Asking for the list makes the server say that it changed, and so on.
func TestNoticeLoop(t *testing.T) {
	inBubble(t, nil, &fakeProcess{tools: []string{"a"}}, func(b *bench) {
		b.set(func(w *world) {
			w.onList = func() {
				now := time.Now()
				b.box.put(func(m *mail) { m.noticed = now })
			}
		})
		b.pass(time.Minute)
		before := b.count(lists)
		b.pass(10 * time.Minute)
		if n := b.count(lists) - before; n > 25 {
			t.Errorf("%d listings in 10 min, and 20 are due anyway", n)
		}
		b.want("ready", "settled [a]")
	})
}

func TestUnusableList(t *testing.T) {
	bad := failure(ProbeList, ReasonRepeatedCursor, "in a circle")
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.set(func(*world) { p.listing = bad })
		b.pass(time.Hour)
		b.want() // the last good one stays

		// It must not keep everybody waiting after a swap either.
		b.kill()
		next := &fakeProcess{tools: []string{"a", "a"}}
		b.start(next)
		b.pass(time.Second)
		b.want("away refused", "ready swap:restart")
		b.pass(b.cfg.ShrinkGrace)
		b.want("settled [a]")
		if got := b.counter("backend_probes_failed_total", "list", "duplicate_name", "s"); got == 0 {
			t.Error("the duplicate isn't counted")
		}
		b.set(func(*world) { next.tools = []string{"a", "b"} })
		b.pass(b.cfg.ListInterval + b.cfg.Settle)
		b.want("settled [a b] by restart")
	})
}

func TestServerThatFailsToList(t *testing.T) {
	p := &fakeProcess{listing: failure(ProbeList, ReasonRPCError, "%w", errRPC)}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(b.cfg.EmptyGrace - time.Second)
		b.want("ready")
		b.pass(2 * time.Second)
		b.want("settled unknown")
		before := b.count(lists)
		b.pass(10 * time.Minute)
		b.want()
		if n := b.count(lists) - before; n > 25 {
			t.Errorf("%d listings in 10 min", n)
		}
	})
}

func TestSwapDuringAListing(t *testing.T) {
	p := &fakeProcess{tools: []string{"a"}}
	inBubble(t, nil, p, func(b *bench) {
		b.pass(time.Minute)
		b.want("ready", "settled [a]")
		b.set(func(w *world) {
			w.onList = func() {
				w.set(func(w *world) {
					w.onList = nil
					p.tools = []string{"half"}
					w.process = &fakeProcess{tools: []string{"a", "b"}}
					w.deaf = true
				})
				b.box.putLost()
			}
		})
		b.pass(b.cfg.ListInterval)
		b.set(func(w *world) { w.deaf = false })
		b.pass(time.Second)
		b.want("away refused", "ready swap:restart", "settled [a b] by restart")
		if got := b.counter("backend_probes_failed_total", "list", "swapped", "s"); got != 1 {
			t.Errorf("%v listings discarded", got)
		}
	})
}

func TestListsOfClients(t *testing.T) {
	raw := func(names ...string) []json.RawMessage {
		var tools []json.RawMessage
		for _, n := range names {
			tools = append(tools, json.RawMessage(fmt.Sprintf(`{"name":%q}`, n)))
		}
		return tools
	}
	p := &fakeProcess{failing: ReasonUnauthorized}
	inBubble(t, nil, p, func(b *bench) {
		observed := func(principal string, names ...string) {
			b.pass(time.Second)
			b.Observed(principal, raw(names...))
			synctest.Wait()
		}
		b.want("ready", "settled unknown")
		observed("alice", "a", "b")
		b.want("settled [a b]")
		observed("bob", "a") // sees less, which is no change
		observed("alice", "b", "a")
		observed("bob", "a")
		b.want()
		observed("bob", "a", "c")
		b.want("settled [a c] by silent")
		observed("alice", "a", "b", "c") // the same change
		b.want()
		observed("alice", "a")
		b.want("settled [a] by silent")

		// A new process shows the same to one of them.
		b.kill()
		b.start(p)
		b.pass(time.Second)
		b.want("away refused", "ready swap:restart", "settled unknown")
		observed("alice", "a")
		b.want("settled [a]")
		b.pass(time.Hour)
		b.want()
	})
}
