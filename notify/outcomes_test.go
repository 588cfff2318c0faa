package notify

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestParkedUntilASignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.clients["a"].set(failing(ReasonNetwork, 0))
		id := h.add("a", 1)[0]
		h.settle("default")
		defer h.run()()
		after(2 * time.Minute)
		if v := h.get(id); v.State != conversation.StateParked {
			t.Fatalf("state is %s after %d attempts", v.State, v.Attempts)
		}
		before := h.clients["a"].count()
		after(h.cfg.ParkInterval * 4)
		if n := h.clients["a"].count() - before; n < 2 || n > 8 {
			t.Errorf("%d calls in four intervals", n)
		}

		h.clients["a"].set(ok)
		h.registry.Seen(conversation.Sighting{ID: id, Server: "default", Source: conversation.SourceURL})
		after(20 * time.Second)
		if v := h.get(id); v.State != conversation.StateCurrent {
			t.Errorf("state is %s after a sign of life", v.State)
		}
		if s := h.converging(); s > 20 {
			t.Errorf("%v seconds of convergence were noted, with the time in which it was parked", s)
		}
	})
}

func TestPausedSandboxIsParkedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.clients["a"].set(failing(ReasonIngress, 404))
		id := h.add("a", 1)[0]
		h.settle("default")
		defer h.run()()
		after(time.Minute)
		if v := h.get(id); v.State != conversation.StateParked || h.clients["a"].count() != 1 {
			t.Errorf("state is %s after %d calls", v.State, h.clients["a"].count())
		}

		h.clients["a"].set(ok)
		after(2 * h.cfg.ParkInterval)
		if v := h.get(id); v.State != conversation.StateCurrent || h.converging() != 0 {
			t.Errorf("state is %s, and %v seconds of convergence were noted", v.State, h.converging())
		}
	})
}

func TestTerminalUntilSomethingChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.clients["a"].set(failing(ReasonRejected, 422))
		id := h.add("a", 1)[0]
		h.settle("default")
		defer h.run()()
		calls := func(want int, when string) {
			t.Helper()
			after(24 * time.Hour)
			if n := h.clients["a"].count(); n != want {
				t.Errorf("%s: %d calls, want %d", when, n, want)
			}
		}
		calls(1, "after the refusal")
		h.settle("default")
		calls(2, "after a new generation")
		if err := h.registry.Refresh(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		calls(3, "after a forced refresh")
		if v := h.get(id); v.State != conversation.StateFailed || !v.NextAttempt.IsZero() {
			t.Errorf("state is %s, next attempt %v", v.State, v.NextAttempt)
		}
	})
}

func TestGone(t *testing.T) {
	gone := failing(ReasonGone, 404)
	tests := map[string]struct {
		n      int
		answer func(id conversation.ID, ids []conversation.ID) refreshFunc
		want   map[conversation.State]int
	}{
		"the only one": {
			n: 1, answer: func(conversation.ID, []conversation.ID) refreshFunc { return gone },
			want: map[conversation.State]int{"removed": 1},
		},
		"all but one": {
			n: 10,
			answer: func(id conversation.ID, ids []conversation.ID) refreshFunc {
				if id == ids[5] {
					return ok
				}

				return gone
			},
			want: map[conversation.State]int{"removed": 9, conversation.StateCurrent: 1},
		},
		"all but one that fails": {
			n: 10,
			answer: func(id conversation.ID, ids []conversation.ID) refreshFunc {
				if id == ids[0] {
					return failing(ReasonLeaseHeld, 404)
				}

				return gone
			},
			want: map[conversation.State]int{"removed": 9, conversation.StateFailed: 1},
		},
		"all": {
			n: 10, answer: func(conversation.ID, []conversation.ID) refreshFunc { return gone },
			want: map[conversation.State]int{conversation.StateParked: 10},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, "a")
				ids := h.add("a", tt.n)
				h.clients["a"].set(func(ctx context.Context, c call) error { return tt.answer(c.id, ids)(ctx, c) })
				h.settle("default")
				defer h.run()()
				after(time.Hour)
				if diff := cmp.Diff(tt.want, h.states(ids)); diff != "" {
					t.Error(diff)
				}
				removed := float64(tt.want["removed"])
				if got := h.result(ResultGone); got != removed {
					t.Errorf("%v gone, want %v", got, removed)
				}
				if (h.failures("a", ReasonAllGone) > 0) != (name == "all") {
					t.Errorf("all_gone is %v", h.failures("a", ReasonAllGone))
				}
				if name != "all" {
					return
				}
				h.clients["a"].set(ok) // the right disk is back
				after(15 * time.Minute)
				if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 10}, h.states(ids)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestUnsupported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.clients["a"].set(failing(ReasonUnsupported, 404))
		ids := h.add("a", 2)
		h.settle("default")
		defer h.run()()
		after(time.Second)
		if diff := cmp.Diff(map[conversation.State]int{conversation.StateUnsupported: 2}, h.states(ids)); diff != "" {
			t.Error(diff)
		}
		now := time.Now()
		h.registry.Listed(conversation.Listing{
			ID: ids[0], Server: "default", Generation: 1, Began: now, Ended: now, Complete: true,
		})
		if v := h.get(ids[0]); v.State != conversation.StateCurrent {
			t.Errorf("state is %s although it was seen to list", v.State)
		}
		after(2 * time.Hour)
		if n := h.failures("a", ReasonUnsupported); n != 2 {
			t.Errorf("%v failures for two conversations", n)
		}
		h.clients["a"].set(ok) // updated
		after(2 * time.Hour)
		if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 2}, h.states(ids)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestDormantIsNotWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		if _, _, err := h.registry.Register(t.Context(), conversation.Registration{
			ID: "sleeper", AgentServer: "a", Source: conversation.SourceDiscovery, LastActive: time.Now(),
		}); err != nil {
			t.Fatal(err)
		}
		after(2 * time.Hour)
		h.settle("default")
		defer h.run()()
		after(time.Hour)
		if n, s := h.clients["a"].count(), h.get("sleeper").State; n != 0 || s != conversation.StateDormant {
			t.Errorf("%d calls, state %s", n, s)
		}
	})
}
