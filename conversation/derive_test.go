package conversation_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestStates(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		time.Sleep(time.Hour) // so that there is a past
		h.settle("tools", "A")
		h.settle("other", "O")
		settled := time.Now()
		for _, test := range []struct {
			id   conversation.ID
			reg  conversation.Registration
			want conversation.State
		}{
			{"nothing-known", conversation.Registration{}, conversation.StateStale},
			{"active", conversation.Registration{LastActive: settled.Add(-time.Minute)}, conversation.StateStale},
			{"idle", conversation.Registration{LastActive: settled.Add(-idleAfter)}, conversation.StateDormant},
			{"created-before", conversation.Registration{CreatedAt: settled.Add(-time.Second)}, conversation.StateStale},
			{"created-in-future", conversation.Registration{CreatedAt: settled.Add(time.Hour)}, conversation.StateStale}, // is now
		} {
			test.reg.ID = test.id
			h.register(test.reg)
			h.wantState(test.id, test.want)
		}
		h.wantDue("nothing-known", "active", "created-before", "created-in-future")

		time.Sleep(10 * time.Second)
		h.register(conversation.Registration{ID: "created-after", CreatedAt: time.Now().Add(-time.Second), Servers: []string{"tools", "other"}})
		h.wantState("created-after", conversation.StateCurrent)
		if s := h.view("created-after").Servers["tools"]; s.How != conversation.HowCreated || s.Applied != 1 || !s.Current {
			t.Errorf("created after the generation: %+v", s)
		}
		h.register(conversation.Registration{ID: "created-just-after", CreatedAt: settled.Add(time.Second)}) // by another clock
		h.wantState("created-just-after", conversation.StateStale)

		// One server's generation is enough to make it stale, and only that server is.
		time.Sleep(time.Minute)
		h.settle("other", "P")
		v := h.view("created-after")
		if v.State != conversation.StateStale || !v.Servers["tools"].Current || v.Servers["other"].Current {
			t.Errorf("after a generation of one server: %+v", v)
		}
		if !v.StaleSince.Equal(time.Now()) {
			t.Errorf("stale since %v, want now", v.StaleSince)
		}

		h.refreshed(v, conversation.HowAcknowledged)
		h.wantState("created-after", conversation.StateCurrent)
		want := map[string]conversation.ServerView{
			"tools": {
				Desired: 1, DesiredHash: "A", Applied: 1, AppliedHash: "A",
				How: conversation.HowAcknowledged, AppliedAt: time.Now().UTC(), Current: true,
			},
			"other": {
				Desired: 2, DesiredHash: "P", Applied: 2, AppliedHash: "P",
				How: conversation.HowAcknowledged, AppliedAt: time.Now().UTC(), Current: true,
			},
		}
		if diff := cmp.Diff(want, h.view("created-after").Servers); diff != "" {
			t.Errorf("after a refresh (-want +got):\n%s", diff)
		}
	})
}

func TestConditions(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		for id, test := range map[conversation.ID]struct {
			cond  conversation.Condition
			state conversation.State
		}{
			"failed":      {conversation.ConditionFailed, conversation.StateFailed},
			"parked":      {conversation.ConditionParked, conversation.StateParked},
			"unsupported": {conversation.ConditionUnsupported, conversation.StateUnsupported},
		} {
			h.register(conversation.Registration{ID: id})
			h.failed(h.view(id), test.cond, time.Minute)
			h.wantState(id, test.state)
			if v := h.view(id); v.Attempts != 1 || v.LastError == nil || v.Tried["tools"] != 1 {
				t.Errorf("%s after a failure: %+v", id, v)
			}
		}
		h.wantDue()
		h.wantNext(time.Minute)
		time.Sleep(time.Minute)
		h.wantDue("failed", "parked", "unsupported")

		h.refreshed(h.view("failed"), conversation.HowObserved)
		if v := h.view("failed"); v.State != conversation.StateCurrent || v.Attempts != 0 || v.LastError != nil ||
			!v.NextAttempt.IsZero() || v.Condition != conversation.ConditionNone || v.Tried != nil {
			t.Errorf("after a success: %+v", v)
		}
	})
}

// TestUntilSomethingChanges covers answers that repeating won't change.
func TestUntilSomethingChanges(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		terminal := func() {
			t.Helper()
			h.failed(h.view("c"), conversation.ConditionFailed, -1)
			h.wantDue()
			time.Sleep(time.Hour)
			h.wantDue()
			h.wantNext(0)
			h.wantState("c", conversation.StateFailed)
			h.drainChanged()
		}
		terminal()
		h.settle("tools", "B")
		h.wantDue("c")
		if !h.drainChanged() {
			t.Error("a new generation wasn't signalled")
		}

		terminal()
		h.settle("other", "X") // not its business
		h.wantDue()
		if err := h.Refresh(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		h.wantDue("c")

		terminal()
		h.register(conversation.Registration{ID: "c"})
		h.wantDue("c")

		terminal()
		h.SessionLost("c", "tools")
		h.wantDue("c")
	})
}

// TestAttemptForOlderGeneration covers a generation that settles during an attempt that fails for good.
func TestAttemptForOlderGeneration(t *testing.T) {
	bubble(t, func(h *harness) {
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		began := h.view("c")
		h.settle("tools", "B")
		h.failed(began, conversation.ConditionFailed, -1)
		h.wantDue("c")
		h.failed(h.view("c"), conversation.ConditionFailed, -1)
		h.wantDue()
	})
}

// TestWaitsHoldForNewGenerations: an agent server that asked to wait is not asked earlier because of a new generation, but one without
// the action is.
func TestWaitsHoldForNewGenerations(t *testing.T) {
	bubble(t, func(h *harness) {
		h.settle("tools", "A")
		for id, cond := range map[conversation.ID]conversation.Condition{
			"failed": conversation.ConditionFailed, "parked": conversation.ConditionParked, "unsupported": conversation.ConditionUnsupported,
		} {
			h.register(conversation.Registration{ID: id})
			h.failed(h.view(id), cond, time.Minute)
		}
		h.settle("tools", "B")
		h.wantDue("unsupported")
		h.wantNext(time.Minute)
	})
}

func TestDormant(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.seen("c", "tools")
		h.lists("c")
		h.wantState("c", conversation.StateCurrent)
		time.Sleep(idleAfter)
		h.wantState("c", conversation.StateCurrent) // idle, but there is nothing to do

		h.settle("tools", "B")
		h.wantState("c", conversation.StateDormant)
		h.wantDue()
		h.drainChanged()

		h.seen("c", "tools")
		h.wantState("c", conversation.StateStale)
		if !h.drainChanged() {
			t.Error("traffic of a dormant conversation wasn't signalled")
		}
		h.wantDue()
		h.wantNext(5 * time.Second)
		time.Sleep(5 * time.Second)
		h.wantDue("c")

		// Stale ones become dormant by time alone.
		time.Sleep(idleAfter)
		h.wantDue()
		h.wantState("c", conversation.StateDormant)

		// A conversation that has built its tools anew needs no refresh.
		h.seen("c", "tools")
		time.Sleep(time.Second)
		h.lists("c")
		h.wantState("c", conversation.StateCurrent)
		if s := h.view("c").Servers["tools"]; s.How != conversation.HowObserved || s.Applied != 2 {
			t.Errorf("after it built its tools: %+v", s)
		}
		h.wantDue()
	})
}

func TestDormantAndForced(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c", LastActive: time.Now().Add(-time.Hour)})
		h.wantState("c", conversation.StateDormant)
		if err := h.Refresh(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		h.wantState("c", conversation.StateStale)
		h.wantDue("c")
		wantErr(t, "Refresh of none", h.Refresh(t.Context(), "x"), conversation.ErrNotFound)
	})
}

// TestNeverDormantWithoutEvidence: where nothing tells of a conversation's activity, it is refreshed.
func TestNeverDormantWithoutEvidence(t *testing.T) {
	bubble(t, func(h *harness) {
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		time.Sleep(48 * time.Hour)
		h.wantState("c", conversation.StateStale)
		h.wantDue("c")
	})
}

func TestNothingOffered(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.register(conversation.Registration{ID: "c"})
		h.wantState("c", conversation.StateCurrent)
		if err := h.Refresh(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		h.wantState("c", conversation.StateStale)
		h.wantDue() // there is nothing to refresh it to
		h.settle("tools", "A")
		h.wantDue("c")
	})
}

// TestStaleSince: the age counts from the first generation that a conversation misses, however many follow.
func TestStaleSince(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		time.Sleep(time.Minute)
		h.register(conversation.Registration{ID: "c", CreatedAt: time.Now()})
		h.wantState("c", conversation.StateCurrent)
		if !h.OldestStale().IsZero() {
			t.Errorf("oldest stale: %v", h.OldestStale())
		}
		time.Sleep(time.Minute)
		first := time.Now()
		h.settle("tools", "B")
		for _, hash := range []string{"C", "B", "C"} {
			time.Sleep(time.Minute)
			h.settle("tools", hash)
		}
		if v := h.view("c"); !v.StaleSince.Equal(first) || !h.OldestStale().Equal(first) {
			t.Errorf("stale since %v, oldest %v; want %v", v.StaleSince, h.OldestStale(), first)
		}
		h.register(conversation.Registration{ID: "d"})
		if v := h.view("d"); !v.StaleSince.Equal(time.Now()) {
			t.Errorf("registered just now, and stale since %v", v.StaleSince)
		}
		h.failed(h.view("c"), conversation.ConditionParked, time.Hour)
		time.Sleep(2 * time.Second)
		if got, want := h.OldestStale(), h.view("d").StaleSince; !got.Equal(want) {
			t.Errorf("oldest is %v, want that of the one that isn't parked, %v", got, want)
		}
		h.failed(h.view("c"), conversation.ConditionFailed, time.Hour)
		resumed := time.Now()
		time.Sleep(time.Minute)
		h.failed(h.view("c"), conversation.ConditionFailed, time.Hour)
		if v := h.view("c"); !v.StaleSince.Equal(resumed) {
			t.Errorf("stale since %v, want %v: it was parked before", v.StaleSince, resumed)
		}
		h.refreshed(h.view("c"), conversation.HowAcknowledged)
		first = time.Now()
		h.settle("tools", "A")
		if v := h.view("c"); !v.StaleSince.Equal(first) {
			t.Errorf("stale anew since %v, want %v", v.StaleSince, first)
		}
	})
}

// TestLateNewsOfActivity: discovery tells of activity some time after it happened.
func TestLateNewsOfActivity(t *testing.T) {
	bubble(t, func(h *harness) {
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c", LastActive: time.Now()})
		time.Sleep(idleAfter + time.Minute)
		h.wantDue()
		h.register(conversation.Registration{
			ID: "c", Source: conversation.SourceDiscovery, LastActive: time.Now().Add(-2 * time.Minute),
		})
		h.wantState("c", conversation.StateStale)
		h.wantDue("c")
		h.register(conversation.Registration{ // older news change nothing
			ID: "c", Source: conversation.SourceDiscovery, LastActive: time.Now().Add(-time.Hour),
		})
		h.wantDue("c")
	})
}
