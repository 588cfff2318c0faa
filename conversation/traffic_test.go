package conversation_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestSeenRegisters(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.seen("builds", "tools")
		h.seen("carries-on", "tools")
		v := h.view("builds")
		if v.Source != conversation.SourceURL || v.AgentServer != "default" || !v.Servers["tools"].Mapped || !h.Mapped("builds", "tools") {
			t.Errorf("registered by traffic: %+v", v)
		}
		if h.Mapped("builds", "other") || h.Mapped("x", "tools") {
			t.Error("mapped where no traffic was")
		}
		h.wantDue() // it may be listing its tools just now
		time.Sleep(time.Second)
		h.lists("builds")
		h.wantState("builds", conversation.StateCurrent)
		h.wantState("carries-on", conversation.StateStale)
		h.wantNext(4 * time.Second)
		time.Sleep(4 * time.Second)
		h.wantDue("carries-on")
		h.lists("carries-on") // too late to be its building
		h.wantDue("carries-on")

		h = h.restart()
		h.wantState("builds", conversation.StateCurrent)
		h.wantState("carries-on", conversation.StateStale)
	})
}

func TestSeenRefuses(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.register(conversation.Registration{ID: "mine", AgentServer: "default"})
		for name, s := range map[string]conversation.Sighting{
			"agent server":  {ID: "a", AgentServer: "x", Server: "tools"},
			"server":        {ID: "b", AgentServer: "default", Server: "x"},
			"id":            {ID: "../c", AgentServer: "default", Server: "tools"},
			"spelling":      {ID: "0F8FAD5BD9CB469FA16570867728950E", AgentServer: "default", Server: "tools"},
			"another's":     {ID: "mine", AgentServer: "second", Server: "other"},
			"unknown there": {ID: "mine", AgentServer: "x", Server: "other"},
		} {
			s.Source = conversation.SourceHeader
			h.Seen(s)
			if _, err := h.Get(s.ID); s.ID != "mine" && !errors.Is(err, conversation.ErrNotFound) {
				t.Errorf("%s: registered (%v)", name, err)
			}
		}
		if v := h.view("mine"); v.AgentServer != "default" || len(v.Servers) != 1 || v.Servers["tools"].Mapped {
			t.Errorf("foreign traffic changed it: %+v", v)
		}
		h.Seen(conversation.Sighting{ID: "mine", Server: "other", Source: conversation.SourceURL}) // names no agent server
		if v := h.view("mine"); !v.Servers["other"].Mapped {
			t.Errorf("its traffic isn't noted: %+v", v)
		}
	})
}

func TestObserved(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		g := h.settle("tools", "B")
		h.register(conversation.Registration{ID: "c"})
		began := time.Now()
		list := func(change func(*conversation.Listing)) {
			l := conversation.Listing{
				ID: "c", Server: "tools", Generation: g.Number, Began: time.Now(), Ended: time.Now(), Complete: true,
			}
			change(&l)
			h.Listed(l)
		}
		for name, change := range map[string]func(*conversation.Listing){
			"began before":   func(l *conversation.Listing) { l.Began = began.Add(-time.Nanosecond) },
			"old generation": func(l *conversation.Listing) { l.Generation = 1 },
			"unsettled":      func(l *conversation.Listing) { l.Generation = 0 },
			"incomplete":     func(l *conversation.Listing) { l.Complete = false },
			"another server": func(l *conversation.Listing) { l.Server = "other" },
			"another one's":  func(l *conversation.Listing) { l.ID = "d" },
		} {
			list(change)
			if h.Observed("c", "tools", began, g.Number) {
				t.Errorf("observed by a listing that doesn't count: %s", name)
			}
		}
		time.Sleep(time.Second)
		list(func(*conversation.Listing) {})
		list(func(l *conversation.Listing) { l.Generation = 0 }) // later ones don't hide it
		list(func(l *conversation.Listing) { l.Generation, l.Began = 1, time.Now().Add(time.Second) })
		for since, want := range map[time.Duration]bool{0: true, time.Second: true, time.Second + 1: false} {
			if got := h.Observed("c", "tools", began.Add(since), g.Number); got != want {
				t.Errorf("observed since %v: %t", since, got)
			}
		}
		if h.Observed("c", "tools", began, g.Number+1) {
			t.Error("a newer generation was observed")
		}
		h.wantState("c", conversation.StateStale) // by itself it changes nothing
		h.wantDue("c")
	})
}

func TestUnsupportedIsObserved(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.settle("other", "O")
		h.register(conversation.Registration{ID: "one"})
		h.register(conversation.Registration{ID: "two", Servers: []string{"tools", "other"}})
		for _, id := range []conversation.ID{"one", "two"} {
			h.failed(h.view(id), conversation.ConditionUnsupported, time.Hour)
			h.wantState(id, conversation.StateUnsupported)
			h.lists(id)
		}
		h.wantState("one", conversation.StateCurrent)
		h.wantState("two", conversation.StateUnsupported)
		if s := h.view("one").Servers["tools"]; s.How != conversation.HowObserved {
			t.Errorf("known by %q", s.How)
		}
		h = h.restart()
		h.wantState("one", conversation.StateCurrent)
	})
}

func TestSessionLost(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		h.refreshed(h.view("c"), conversation.HowObserved)
		h.wantDue()
		h.drainChanged()

		lost := time.Now()
		h.SessionLost("c", "tools")
		h.SessionLost("unknown", "tools")
		h.SessionLost("c", "unknown")
		h.wantDue("c")
		if v := h.view("c"); v.State != conversation.StateStale || v.Servers["tools"].How != conversation.HowLost || !v.StaleSince.Equal(lost) {
			t.Errorf("after the loss: %+v", v)
		}
		if !h.drainChanged() {
			t.Error("the loss wasn't signalled")
		}
		synctest.Wait()
		h = h.restart()
		h.wantState("c", conversation.StateStale)

		// A refresh that began before another loss doesn't make up for it.
		began := h.view("c")
		time.Sleep(time.Second)
		h.SessionLost("c", "tools")
		h.refreshed(began, conversation.HowObserved)
		h.wantState("c", conversation.StateStale)
		h.refreshed(h.view("c"), conversation.HowObserved)
		h.wantState("c", conversation.StateCurrent)
	})
}

func TestForcedDuringRefresh(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		began := h.view("c")
		time.Sleep(time.Millisecond)
		if err := h.Refresh(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		h.refreshed(began, conversation.HowObserved)
		h.wantState("c", conversation.StateStale)
		h = h.restart()
		h.wantDue("c")
		h.refreshed(h.view("c"), conversation.HowObserved)
		h.wantState("c", conversation.StateCurrent)
	})
}

// TestGenerationDuringRefresh: what a refresh brought is noted, and is not enough.
func TestGenerationDuringRefresh(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		first := h.view("c")
		h.settle("tools", "B")
		second := h.view("c")
		h.refreshed(second, conversation.HowObserved)
		h.wantState("c", conversation.StateCurrent)
		h.refreshed(first, conversation.HowObserved) // comes late
		h.wantState("c", conversation.StateCurrent)
		h.settle("tools", "C")
		h.refreshed(second, conversation.HowObserved)
		if v := h.view("c"); v.State != conversation.StateStale || v.Servers["tools"].Applied != 2 {
			t.Errorf("after a refresh to an old generation: %+v", v)
		}
	})
}

// TestSignOfLifeOfParked: traffic brings the next attempt forward, but doesn't let attempts follow each other too closely.
func TestSignOfLifeOfParked(t *testing.T) {
	bubble(t, func(h *harness) {
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		h.failed(h.view("c"), conversation.ConditionParked, 5*time.Minute)
		h.wantNext(5 * time.Minute)
		h.seen("c", "tools")
		h.wantNext(15 * time.Second)
		time.Sleep(15 * time.Second)
		h.wantDue("c")
		h.failed(h.view("c"), conversation.ConditionParked, 5*time.Minute)
		time.Sleep(time.Minute)
		h.wantDue()
		h.seen("c", "tools")
		h.wantDue("c")
	})
}

// TestSignsOfLifeAreStored, in few writes and without waiting for the end.
func TestSignsOfLifeAreStored(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		for _, id := range []conversation.ID{"a", "b", "c"} {
			h.register(conversation.Registration{ID: id})
		}
		writes := h.store.writes.Load()
		var last time.Time
		for range 1000 {
			for _, id := range []conversation.ID{"a", "b", "c"} {
				h.seen(id, "tools")
			}
			last = time.Now()
			time.Sleep(time.Millisecond)
		}
		if n := h.store.writes.Load(); n != writes {
			t.Errorf("traffic caused %d writes at once", n-writes)
		}
		time.Sleep(30 * time.Second)
		synctest.Wait()
		if n := h.store.writes.Load() - writes; n != 1 {
			t.Errorf("%d writes, want 1", n)
		}
		for _, id := range []conversation.ID{"a", "b", "c"} {
			if c, err := h.store.Get(t.Context(), id); err != nil || !c.LastActive.Equal(last) {
				t.Errorf("%q was last active at %v, %v; want %v", id, c.LastActive, err, last)
			}
		}
	})
}

// TestSignsOfLifeSurviveAnOutage of the store, however many batches there are.
func TestSignsOfLifeSurviveAnOutage(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		h.seen("c", "tools")
		h.store.away.Store(true)
		time.Sleep(time.Minute)
		h.store.away.Store(false)
		last := h.view("c").LastActive
		time.Sleep(time.Minute)
		synctest.Wait()
		if c, err := h.store.Get(t.Context(), "c"); err != nil || !c.LastActive.Equal(last) {
			t.Errorf("stored last activity %v, %v; want %v", c.LastActive, err, last)
		}

		// What isn't worth a write at once is written at the end.
		h.seen("c", "tools")
		time.Sleep(time.Minute)
		h.seen("c", "tools")
		last = time.Now()
		time.Sleep(time.Minute)
		if c, err := h.store.Get(t.Context(), "c"); err != nil || c.LastActive.Equal(last) {
			t.Errorf("written too eagerly: %v, %v", c.LastActive, err)
		}
		h.stop()
		if c, err := h.store.Get(t.Context(), "c"); err != nil || !c.LastActive.Equal(last) {
			t.Errorf("stored last activity %v, %v; want %v", c.LastActive, err, last)
		}
	})
}
