package conversation_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestSettle(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		if _, ok := h.Generation("tools"); ok {
			t.Error("a generation before the first")
		}
		for _, step := range []struct {
			hash    string
			number  uint64
			changed bool
		}{{"A", 1, false}, {"A", 1, false}, {"B", 2, true}, {"A", 3, true}, {"A", 3, false}} {
			g, changed, err := h.Settle(t.Context(), "tools", step.hash, map[string]string{"t": step.hash}, time.Now())
			if err != nil || g.Number != step.number || g.Hash != step.hash || changed != step.changed || g.Tools["t"] != step.hash {
				t.Errorf("Settle(%q) = %+v, %t, %v; want number %d, changed %t", step.hash, g, changed, err, step.number, step.changed)
			}
			if have, ok := h.Generation("tools"); !ok || have.Number != step.number {
				t.Errorf("Generation = %+v, %t", have, ok)
			}
			time.Sleep(time.Second)
		}
		_, _, err := h.Settle(t.Context(), "tools", "", nil, time.Now())
		wantErr(t, "Settle without a hash", err, conversation.ErrInvalid)
		if _, _, err := h.Settle(t.Context(), "x", "A", nil, time.Now()); err == nil {
			t.Error("Settle of an unknown server succeeded")
		}
	})
}

func TestSettleAfterRestart(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		settled := time.Now()
		time.Sleep(time.Hour)
		h.register(conversation.Registration{ID: "c", CreatedAt: time.Now()})
		h.wantState("c", conversation.StateCurrent)

		h = h.restart()
		g, changed, err := h.Settle(t.Context(), "tools", "A", nil, time.Now())
		if err != nil || changed || g.Number != 1 || !g.At.Equal(settled) {
			t.Errorf("Settle of the stored hash = %+v, %t, %v", g, changed, err)
		}
		h.wantState("c", conversation.StateCurrent)

		h = h.restart()
		g, changed, err = h.Settle(t.Context(), "tools", "B", nil, time.Now())
		if err != nil || !changed || g.Number != 2 {
			t.Errorf("Settle of another hash = %+v, %t, %v", g, changed, err)
		}
		h.wantState("c", conversation.StateStale)
	})
}

// TestSettleReturningHash: a conversation that missed what was in between may have been given it all the same.
func TestSettleReturningHash(t *testing.T) {
	bubble(t, func(h *harness) {
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		h.refreshed(h.view("c"), conversation.HowObserved)
		h.settle("tools", "B")
		h.settle("tools", "A")
		h.wantDue("c")
	})
}

func TestSettleWritesNoConversations(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		for _, id := range []conversation.ID{"a", "b", "c"} {
			h.register(conversation.Registration{ID: id})
			h.refreshed(h.view(id), conversation.HowObserved)
		}
		writes := h.store.writes.Load()
		h.drainChanged()
		h.settle("tools", "B")
		if !h.drainChanged() {
			t.Error("a generation wasn't signalled")
		}
		synctest.Wait()
		if n := h.store.writes.Load() - writes; n != 1 {
			t.Errorf("a generation caused %d writes, want 1", n)
		}
		h.wantDue("a", "b", "c")
	})
}

func TestSwapped(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.Swapped("tools") // nothing is known to be swapped
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		h.refreshed(h.view("c"), conversation.HowObserved)
		h.wantDue()
		h.Swapped("tools")
		h.wantDue("c")
		if g := h.settle("tools", "A"); g.Number != 2 {
			t.Errorf("generation after the swap: %+v", g)
		}
		h = h.restart()
		h.wantDue("c")
		h.refreshed(h.view("c"), conversation.HowObserved)
		h.wantDue()
	})
}

// TestNewServer: a server that is added later finds its stored generation.
func TestNewServer(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.settle("tools", "B")
		h.stop()
		cfg := testConfig()
		cfg.Servers = []string{"other"}
		h = start(t, h.store, cfg)
		h.register(conversation.Registration{ID: "c", Servers: []string{"other"}})
		if err := h.SetConfig(testConfig()); err != nil {
			t.Fatal(err)
		}
		if g := h.settle("tools", "B"); g.Number != 2 {
			t.Errorf("generation is %+v, want the stored one", g)
		}

		// A server that was taken out needs nothing.
		h.register(conversation.Registration{ID: "d"})
		h.wantDue("d")
		if err := h.SetConfig(cfg); err != nil {
			t.Fatal(err)
		}
		h.wantDue()
		h.wantState("d", conversation.StateCurrent)
	})
}

// TestTwoReplicas has two registries on one store agree on numbers.
func TestTwoReplicas(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		other := start(t, h.store, testConfig())
		if g := h.settle("tools", "A"); g.Number != 1 {
			t.Errorf("first: %+v", g)
		}
		if g := other.settle("tools", "A"); g.Number != 1 {
			t.Errorf("the other with the same hash: %+v", g)
		}
		if g := h.settle("tools", "B"); g.Number != 2 {
			t.Errorf("second: %+v", g)
		}
		if g := other.settle("tools", "C"); g.Number != 3 {
			t.Errorf("the other with another hash: %+v", g)
		}
		if g := h.settle("tools", "C"); g.Number != 3 {
			t.Errorf("the same at last: %+v", g)
		}

		// Changes of both are kept.
		h.register(conversation.Registration{ID: "c"})
		other.register(conversation.Registration{ID: "c"})
		for i, r := range []*harness{h, other, other, h} {
			if _, err := r.Update(t.Context(), "c", func(c *conversation.Conversation) error {
				c.Attempts++
				return nil
			}); err != nil {
				t.Errorf("update %d: %v", i, err)
			}
		}
		if c, err := h.store.Get(t.Context(), "c"); err != nil || c.Attempts != 4 {
			t.Errorf("stored: %+v, %v", c, err)
		}

		// What traffic told one of them survives a change by the other.
		began := other.view("c")
		other.refreshed(began, conversation.HowObserved)
		h.SessionLost("c", "tools")
		h.seen("c", "other")
		synctest.Wait()
		c, err := h.store.Get(t.Context(), "c")
		if err != nil || c.Servers["tools"].How != conversation.HowLost || len(c.Servers) != 2 {
			t.Errorf("stored: %+v, %v", c, err)
		}

		if err := other.Remove(t.Context(), "c"); err != nil {
			t.Errorf("Remove after the other's change: %v", err)
		}
		_, err = h.Update(t.Context(), "c", func(c *conversation.Conversation) error { c.Attempts++; return nil })
		wantErr(t, "Update of what the other removed", err, conversation.ErrNotFound)
	})
}

// TestStoreAway: everything goes on in memory, and is written once the store is back.
func TestStoreAway(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "old"})
		h.register(conversation.Registration{ID: "removed"})
		h.refreshed(h.view("old"), conversation.HowObserved)

		h.store.away.Store(true)
		for _, hash := range []string{"B", "C", "D"} {
			g, changed, err := h.Settle(t.Context(), "tools", hash, nil, time.Now())
			if err != nil || !changed {
				t.Errorf("Settle(%q) = %+v, %t, %v", hash, g, changed, err)
			}
		}
		h.register(conversation.Registration{ID: "new"})
		h.seen("seen", "tools")
		h.refreshed(h.view("old"), conversation.HowObserved)
		h.wantState("old", conversation.StateCurrent)
		if err := h.Remove(t.Context(), "removed"); err != nil {
			t.Errorf("Remove: %v", err)
		}
		h.wantGone("removed")
		time.Sleep(time.Minute)
		if _, err := h.store.Get(t.Context(), "new"); err == nil {
			t.Error("the store isn't away")
		}

		h.store.away.Store(false)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		h = h.restart()
		h.wantThere("old", "new", "seen")
		h.wantGone("removed")
		h.wantState("old", conversation.StateCurrent)
		if g, ok := h.Generation("tools"); !ok || g.Number != 4 || g.Hash != "D" {
			t.Errorf("generation is %+v, %t", g, ok)
		}
	})
}

// TestGenerationIsWrittenBeforeWhatNamesIt, or else a number could be given twice.
func TestGenerationIsWrittenBeforeWhatNamesIt(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		h.store.away.Store(true)
		h.settle("tools", "B")
		h.store.away.Store(false)
		h.refreshed(h.view("c"), conversation.HowObserved)
		if g, err := h.store.Generation(t.Context(), "tools"); err != nil || g.Number != 2 {
			t.Errorf("stored generation is %+v, %v", g, err)
		}
	})
}

func TestEndedContext(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.register(conversation.Registration{ID: "c"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, _, err := h.Register(ctx, conversation.Registration{ID: "d", Source: conversation.SourceAdmin})
		wantErr(t, "Register", err, context.Canceled)
		wantErr(t, "Refresh", h.Refresh(ctx, "c"), context.Canceled)
		wantErr(t, "Remove", h.Remove(ctx, "c"), context.Canceled)
		h.wantThere("c")
		h.wantGone("d")
	})
}
