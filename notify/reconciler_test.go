package notify

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestBringsConversationsToTheDesiredGeneration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		ids := h.add("a", 100)
		h.settle("default")
		defer h.run()()
		after(time.Second)
		if got := h.clients["a"].count(); got != 100 {
			t.Errorf("%d calls for 100 conversations", got)
		}
		if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 100}, h.states(ids)); diff != "" {
			t.Error(diff)
		}
		s := h.get(ids[0]).Servers["default"]
		if s.Applied != 1 || s.How != conversation.HowAcknowledged || s.AppliedHash == "" {
			t.Errorf("applied is %+v", s)
		}

		after(time.Hour) // nothing is repeated
		if got := h.clients["a"].count(); got != 100 {
			t.Errorf("%d calls after an hour of peace", got)
		}
		h.settle("default")
		after(time.Second)
		if got := h.clients["a"].count(); got != 200 {
			t.Errorf("%d calls after the second generation", got)
		}
		if got := h.result(ResultSuccess); got != 200 {
			t.Errorf("%v successes", got)
		}
		if n := strings.Count(h.logs.String(), "all conversations have the generation"); n != 2 {
			t.Errorf("%d summaries for two generations:\n%s", n, h.logs.String())
		}
		if strings.Contains(h.logs.String(), "level=WARN") {
			t.Error("a warning without a failure")
		}
	})
}

func TestObservedAndAcknowledged(t *testing.T) {
	list := func(h *harness, id conversation.ID, generation uint64, complete bool) {
		now := time.Now()
		h.registry.Listed(conversation.Listing{
			ID: id, Server: "default", Generation: generation, Began: now, Ended: now, Complete: complete,
		})
	}
	tests := map[string]struct {
		answer func(h *harness) refreshFunc
		calls  int
		how    conversation.How
	}{
		"lists during the call": {
			answer: func(h *harness) refreshFunc {
				return func(_ context.Context, c call) error { list(h, c.id, 2, true); return nil }
			}, calls: 1, how: conversation.HowObserved,
		},
		"listing is reported late": {
			answer: func(h *harness) refreshFunc {
				return func(_ context.Context, c call) error {
					began := time.Now()
					time.AfterFunc(50*time.Millisecond, func() {
						h.registry.Listed(conversation.Listing{
							ID: c.id, Server: "default", Generation: 2, Began: began, Ended: time.Now(), Complete: true,
						})
					})

					return nil
				}
			}, calls: 1, how: conversation.HowObserved,
		},
		"mapped, but no list comes": {
			answer: func(*harness) refreshFunc { return ok }, calls: 2, how: conversation.HowAcknowledged,
		},
		"list began before the generation had settled": {
			answer: func(h *harness) refreshFunc {
				return func(_ context.Context, c call) error { list(h, c.id, 1, true); return nil }
			}, calls: 2, how: conversation.HowAcknowledged,
		},
		"list is incomplete": {
			answer: func(h *harness) refreshFunc {
				return func(_ context.Context, c call) error { list(h, c.id, 2, false); return nil }
			}, calls: 2, how: conversation.HowAcknowledged,
		},
		"lists, but another MCP server is dead": {
			answer: func(h *harness) refreshFunc {
				return func(ctx context.Context, c call) error {
					list(h, c.id, 2, true)

					return failing(ReasonServerError, 500)(ctx, c)
				}
			}, calls: 1, how: conversation.HowObserved,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, "a")
				h.settle("default")
				id := h.add("a", 1)[0]
				defer h.run()()
				after(10 * time.Second)
				h.registry.Seen(conversation.Sighting{ID: id, Server: "default", Source: conversation.SourceURL})
				list(h, id, 1, true)
				before := h.clients["a"].count()
				h.clients["a"].set(tt.answer(h))
				h.setReady("default", false)
				h.settle("default")
				list(h, id, 2, true) // by itself: cancels nothing
				after(time.Second)
				h.setReady("default", true)
				after(time.Minute)
				if got := h.clients["a"].count() - before; got != tt.calls {
					t.Errorf("%d calls, want %d", got, tt.calls)
				}
				if s := h.get(id).Servers["default"]; s.Applied != 2 || s.How != tt.how {
					t.Errorf("applied is %d by %q, want 2 by %q", s.Applied, s.How, tt.how)
				}
			})
		})
	}
}

func TestWaitsForTheBackend(t *testing.T) {
	for _, wake := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			h := newHarness(t, "a")
			h.setReady("default", false)
			ids := h.add("a", 10)
			h.settle("default")
			defer h.run()()
			after(time.Hour)
			if n := h.clients["a"].count(); n != 0 {
				t.Errorf("%d calls while the backend was away", n)
			}
			if depth := testutil.ToFloat64(h.metrics.queueDepth); depth != 10 {
				t.Errorf("queue depth is %v", depth)
			}
			h.setReady("default", true)
			if wake {
				h.r.Wake()
				synctest.Wait()
			} else {
				after(h.cfg.ReadyInterval)
			}
			if n := h.clients["a"].count(); n != 10 {
				t.Errorf("%d calls after the release", n)
			}
			if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 10}, h.states(ids)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestEachServerCountsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.setReady("other", false)
		id := h.add("a", 1, "default", "other")[0]
		h.settle("default")
		h.settle("other")
		defer h.run()()
		after(time.Minute)
		v := h.get(id)
		if h.clients["a"].count() != 1 || !v.Servers["default"].Current || v.Servers["other"].Current {
			t.Errorf("after %d calls: %+v", h.clients["a"].count(), v.Servers)
		}
		h.setReady("other", true)
		h.r.Wake()
		after(time.Second)
		if v := h.get(id); h.clients["a"].count() != 2 || v.State != conversation.StateCurrent {
			t.Errorf("after %d calls: %+v", h.clients["a"].count(), v.Servers)
		}
	})
}

func TestNewestGenerationWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.clients["a"].set(taking(2*time.Second, ok))
		id := h.add("a", 1)[0]
		h.settle("default")
		defer h.run()()
		synctest.Wait()
		for range 3 {
			after(500 * time.Millisecond)
			h.settle("default")
		}
		after(time.Minute)
		if n := h.clients["a"].count(); n != 2 {
			t.Errorf("%d calls for four generations during one refresh, want 2", n)
		}
		if s := h.get(id).Servers["default"]; s.Applied != 4 {
			t.Errorf("generation %d is applied", s.Applied)
		}
		if s, ok := h.result(ResultSuperseded), h.result(ResultSuccess); s != 1 || ok != 1 {
			t.Errorf("%v superseded, %v successful", s, ok)
		}
		if diff := cmp.Diff([]EventType{EventStarted, EventSuperseded, EventStarted, EventSucceeded}, h.eventTypes()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestGateSeesChanges(t *testing.T) {
	changes := map[string]func(h *harness, id conversation.ID){
		"newer generation": func(h *harness, _ conversation.ID) { h.settle("default") },
		"registration ends": func(h *harness, id conversation.ID) {
			if err := h.registry.Remove(t.Context(), id); err != nil {
				h.t.Error(err)
			}
		},
		"backend goes away": func(h *harness, _ conversation.ID) { h.setReady("default", false) },
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, "a")
				var gated error
				h.clients["a"].set(func(_ context.Context, c call) error {
					if err := c.gate(); err != nil {
						t.Errorf("the gate is closed at the beginning: %v", err)
					}
					h.clients["a"].set(ok)
					change(h, c.id)
					gated = c.gate()

					return gated
				})
				h.add("a", 1)
				h.settle("default")
				defer h.run()()
				after(time.Second)
				if ReasonOf(gated) != ReasonSuperseded || h.result(ResultSuperseded) != 1 {
					t.Errorf("the gate said %v", gated)
				}
				want := 1
				if name == "newer generation" {
					want = 2
				}
				if n := h.clients["a"].count(); n != want {
					t.Errorf("%d calls, want %d", n, want)
				}
			})
		})
	}
}

func TestNoCallAfterTheEndOfARegistration(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.servers[0].Concurrency = 1
		h.clients["a"].set(taking(time.Second, ok))
		ids := h.add("a", 3)
		h.settle("default")
		defer h.run()()
		synctest.Wait()
		for _, id := range ids { // one is running, two wait
			if err := h.registry.Remove(t.Context(), id); err != nil {
				t.Fatal(err)
			}
		}
		after(time.Hour)
		if n := h.clients["a"].count(); n != 1 {
			t.Errorf("%d calls", n)
		}
		if diff := cmp.Diff(map[conversation.State]int{"removed": 3}, h.states(ids)); diff != "" {
			t.Errorf("a registration came back: %s", diff)
		}
	})
}

func TestBackoffGrowsIsJitteredAndCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.clients["a"].set(failing(ReasonServerError, 500))
		id := h.add("a", 1)[0]
		h.settle("default")
		defer h.run()()
		after(2 * time.Hour)
		gaps := h.clients["a"].gaps()
		if len(gaps) < 20 {
			t.Fatalf("only %d calls in two hours", len(gaps)+1)
		}
		for i, gap := range gaps {
			nominal := min(h.cfg.BackoffMin<<min(i, 20), h.cfg.BackoffMax)
			if slack := minScanGap + h.cfg.ObserveGrace; gap < nominal/2 || gap > nominal*3/2+slack {
				t.Errorf("wait %d is %v, nominal %v", i, gap, nominal)
			}
		}
		v := h.get(id)
		if v.State != conversation.StateFailed || v.Attempts != len(gaps)+1 || v.LastError.Reason != string(ReasonServerError) {
			t.Errorf("record is %s after %d attempts: %+v", v.State, v.Attempts, v.LastError)
		}
		if n := strings.Count(h.logs.String(), "level=WARN"); n != 1 {
			t.Errorf("%d warnings about the same error", n)
		}

		h.clients["a"].set(ok)
		after(h.cfg.BackoffMax * 2)
		if v := h.get(id); v.State != conversation.StateCurrent || v.Attempts != 0 || v.LastError != nil {
			t.Errorf("record is %s after %d attempts: %+v", v.State, v.Attempts, v.LastError)
		}
		if !strings.Contains(h.logs.String(), `level=INFO msg="conversation refreshed"`) {
			t.Error("success after failures is not told")
		}
	})
}

func TestRetryAfterIsAMinimum(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.clients["a"].set(func(context.Context, call) error {
			h.clients["a"].set(ok)

			return &Error{Reason: ReasonThrottled, Status: 429, RetryAfter: 4 * time.Minute, Err: errors.New("later")}
		})
		h.add("a", 1)
		h.settle("default")
		defer h.run()()
		after(time.Hour)
		if gaps := h.clients["a"].gaps(); len(gaps) != 1 || gaps[0] < 4*time.Minute || gaps[0] > 4*time.Minute+time.Second {
			t.Errorf("gaps %v", gaps)
		}
	})
}

func TestForcedRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		id := h.add("a", 1)[0]
		h.settle("default")
		defer h.run()()
		after(time.Second)
		if err := h.registry.Refresh(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		after(time.Hour)
		if v := h.get(id); h.clients["a"].count() != 2 || v.Forced {
			t.Errorf("%d calls, forced %t", h.clients["a"].count(), v.Forced)
		}

		// Asked for again while it runs: once more.
		h.clients["a"].set(taking(time.Minute/2, ok))
		for range 3 {
			if err := h.registry.Refresh(t.Context(), id); err != nil {
				t.Fatal(err)
			}
			after(time.Second)
		}
		after(time.Hour)
		if v := h.get(id); h.clients["a"].count() != 4 || v.Forced {
			t.Errorf("%d calls, forced %t", h.clients["a"].count(), v.Forced)
		}
	})
}

// What makes a conversation stale while it is being refreshed leads to one more refresh, and at once.
func TestStaleAgainDuringARefresh(t *testing.T) {
	for name, again := range map[string]func(h *harness, id conversation.ID){
		"a refresh is asked for": func(h *harness, id conversation.ID) {
			if err := h.registry.Refresh(t.Context(), id); err != nil {
				t.Error(err)
			}
		},
		"a session is lost": func(h *harness, id conversation.ID) { h.registry.SessionLost(id, "default") },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, "a")
				id := h.add("a", 1)[0]
				h.settle("default")
				h.clients["a"].set(taking(2*time.Second, ok))
				defer h.run()()
				after(time.Second)
				again(h, id)
				after(5 * time.Second) // the rest of the first refresh, and the second
				if got := h.clients["a"].count(); got != 2 {
					t.Errorf("%d calls, want 2", got)
				}
				if got := h.get(id).State; got != conversation.StateCurrent {
					t.Errorf("the conversation is %s", got)
				}
			})
		})
	}
}

func TestRegistrationIsKept(t *testing.T) {
	for _, r := range []Reason{
		ReasonAuth, ReasonCredential, ReasonNotFound, ReasonLeaseHeld, ReasonConflict,
		ReasonTLS, ReasonRedirect, ReasonForbiddenAddress, ReasonTimeout, ReasonNotConnected, ReasonOther, "invented",
	} {
		t.Run(string(r), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, "a")
				h.clients["a"].set(failing(r, 0))
				ids := h.add("a", 2)
				h.settle("default")
				defer h.run()()
				after(time.Hour)
				for _, id := range ids {
					if v := h.get(id); v.LastError == nil || v.LastError.Reason != string(r.known()) || v.NextAttempt.IsZero() {
						t.Errorf("record: %+v, next %v", v.LastError, v.NextAttempt)
					}
				}
				if h.failures("a", r.known()) == 0 {
					t.Error("not counted")
				}
				h.clients["a"].set(ok)
				after(10 * time.Minute)
				if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 2}, h.states(ids)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}
