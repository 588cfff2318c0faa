package notify

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestConcurrencyIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a", "b", "c")
		h.cfg.Concurrency = 8
		for name, c := range h.clients {
			c.set(taking(time.Second, ok))
			h.add(name, 20)
		}
		h.settle("default")
		defer h.run()()
		after(time.Second / 2)
		if busy := testutil.ToFloat64(h.metrics.workersBusy); busy != 8 {
			t.Errorf("%v refreshes at once, want 8", busy)
		}
		after(time.Minute)
		for name, c := range h.clients {
			if c.count() != 20 || c.peak > 4 {
				t.Errorf("agent server %s: %d calls, %d at once", name, c.count(), c.peak)
			}
		}
	})
}

func TestHangingAgentServerDelaysNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "hangs", "well")
		h.cfg.Concurrency = 8
		h.clients["hangs"].set(taking(time.Hour, ok))
		stuck := h.add("hangs", 100)
		fine := h.add("well", 100)
		h.settle("default")
		defer h.run()()
		after(time.Second)
		if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 100}, h.states(fine)); diff != "" {
			t.Error(diff)
		}
		after(10 * time.Minute)
		if n := h.clients["hangs"].count(); n > 30 {
			t.Errorf("%d calls to an agent server that hangs", n)
		}
		// One may be the last that it was tried with.
		if states := h.states(stuck); states[conversation.StateParked] < 99 || states[conversation.StateParked]+states[conversation.StateFailed] != 100 {
			t.Errorf("states: %v", states)
		}
		if h.failures("hangs", ReasonTimeout) < 100 {
			t.Error("the failures are not counted")
		}
	})
}

func TestDeadAgentServerComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.clients["a"].set(taking(time.Millisecond, failing(ReasonNetwork, 0)))
		ids := h.add("a", 300)
		h.settle("default")
		defer h.run()()
		after(2 * time.Minute)
		// One may be the last that it was tried with.
		if states := h.states(ids); states[conversation.StateParked] < 299 || states[conversation.StateParked]+states[conversation.StateFailed] != 300 {
			t.Errorf("states: %v", states)
		}
		if n := h.clients["a"].count(); n > 30 {
			t.Errorf("%d calls to a dead agent server in two minutes", n)
		}
		before := h.clients["a"].count()
		after(10 * time.Minute)
		if n := h.clients["a"].count() - before; n < 1 || n > 10 {
			t.Errorf("%d calls to a dead agent server in ten minutes", n)
		}
		if n := strings.Count(h.logs.String(), "level=WARN"); n > 3 {
			t.Errorf("%d warnings about one dead agent server", n)
		}
		h.clients["a"].set(ok)
		after(2 * longestPause)
		if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 300}, h.states(ids)); diff != "" {
			t.Error(diff)
		}
	})
}

func TestPanicIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		ids := h.add("a", 10)
		h.clients["a"].set(func(_ context.Context, c call) error {
			if c.id == ids[3] {
				panic("canary-in-panic")
			}

			return nil
		})
		h.settle("default")
		defer h.run()()
		after(10 * time.Minute)
		if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 9, conversation.StateFailed: 1}, h.states(ids)); diff != "" {
			t.Error(diff)
		}
		panics := testutil.ToFloat64(h.metrics.panics.WithLabelValues("notify"))
		if panics == 0 || panics > 20 || h.failures("a", ReasonOther) != panics {
			t.Errorf("%v panics counted", panics)
		}
		if strings.Contains(h.logs.String(), "canary-in-panic") {
			t.Error("the log tells the value of a panic")
		}
	})
}

// brokenRegistry can't write.
type brokenRegistry struct {
	*conversation.Registry

	broken atomic.Bool
}

func (b *brokenRegistry) Update(ctx context.Context, id conversation.ID, fn func(*conversation.Conversation) error) (conversation.Conversation, error) {
	if b.broken.Load() {
		return conversation.Conversation{}, errors.New("disk is full")
	}

	return b.Registry.Update(ctx, id, fn)
}

func TestUnrecordedRefreshIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		broken := &brokenRegistry{Registry: h.registry}
		broken.broken.Store(true)
		h.deps.Registry = broken
		id := h.add("a", 1)[0]
		h.settle("default")
		defer h.run()()
		after(time.Minute)
		if n := h.clients["a"].count(); n < 2 || n > 61 {
			t.Errorf("%d calls in a minute without a record", n)
		}
		if s := h.get(id).State; s != conversation.StateStale {
			t.Errorf("state is %s", s)
		}
		broken.broken.Store(false)
		after(time.Minute)
		if s := h.get(id).State; s != conversation.StateCurrent {
			t.Errorf("state is %s", s)
		}
	})
}

// slowRegistry answers so late that a running attempt ends meanwhile.
type slowRegistry struct {
	*conversation.Registry

	meanwhile func()
}

func (s *slowRegistry) Due(now time.Time) ([]conversation.ID, time.Time) {
	ids, next := s.Registry.Due(now)
	if s.meanwhile != nil && len(ids) > 0 {
		s.meanwhile()
	}

	return ids, next
}

func TestOldNewsRepeatNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		slow := &slowRegistry{Registry: h.registry}
		h.deps.Registry = slow
		h.clients["a"].set(taking(time.Minute/2, failing(ReasonRejected, 400)))
		slow.meanwhile = func() {
			if h.clients["a"].count() > 0 {
				time.Sleep(time.Minute)
			}
		}
		id := h.add("a", 1)[0]
		h.settle("default")
		defer h.run()()
		after(time.Second)
		h.r.Wake() // asks the registry while the call is running
		after(time.Hour)
		if n, s := h.clients["a"].count(), h.get(id).State; n != 1 || s != conversation.StateFailed {
			t.Errorf("%d calls, state %s", n, s)
		}
	})
}

func TestStop(t *testing.T) {
	tests := map[string]struct {
		takes   time.Duration
		current int
		log     string
	}{
		"running refreshes finish":  {takes: 2 * time.Second, current: 4, log: "pending=6 interrupted=0"},
		"endless ones are cut off":  {takes: time.Hour, log: "pending=6 interrupted=4"},
		"nothing is left, no words": {current: 10},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, "a")
				h.clients["a"].set(taking(tt.takes, ok))
				ids := h.add("a", 10)
				h.settle("default")
				stop := h.run()
				after(time.Second)
				began := time.Now()
				stop()
				if took := time.Since(began); took > h.cfg.ShutdownTimeout+time.Second {
					t.Errorf("stopping took %v", took)
				}
				states := h.states(ids)
				if states[conversation.StateCurrent] != tt.current || states[conversation.StateCurrent]+states[conversation.StateStale] != 10 {
					t.Errorf("states: %v", states)
				}
				if tt.log == "" == strings.Contains(h.logs.String(), "stopped with") || !strings.Contains(h.logs.String(), tt.log) {
					t.Errorf("log: %s", h.logs.String())
				}
				// The next start continues.
				h.clients["a"].set(ok)
				defer h.run()()
				after(time.Second)
				if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 10}, h.states(ids)); diff != "" {
					t.Error(diff)
				}
			})
		})
	}
}

func TestAgentServersChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a", "b")
		all := h.servers
		h.servers = all[:1]
		onA, onB := h.add("a", 2), h.add("b", 2)
		h.clients["a"].set(taking(time.Second, ok))
		h.settle("default")
		defer h.run()()
		synctest.Wait()
		if err := h.r.SetAgentServers(all[1:]); err != nil { // while two calls to a are running
			t.Fatal(err)
		}
		after(time.Minute)
		if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 2}, h.states(onA)); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 2}, h.states(onB)); diff != "" {
			t.Error(diff)
		}
		if !h.clients["a"].closed {
			t.Error("the client of a removed agent server is not closed")
		}
		if err := h.r.SetAgentServers(append(all, all[0])); err == nil {
			t.Error("two of one name are accepted")
		}
		h.settle("default")
		after(time.Minute)
		if h.clients["a"].count() != 2 || h.clients["b"].count() != 4 {
			t.Errorf("%d and %d calls", h.clients["a"].count(), h.clients["b"].count())
		}
		sandbox := all[0]
		sandbox.Label = "sandboxes"
		for range 2 { // it is put again
			if err := h.r.PutAgentServer(sandbox); err != nil {
				t.Fatal(err)
			}
		}
		after(time.Minute)
		if h.clients["a"].count() != 4 || h.clients["b"].count() != 4 {
			t.Errorf("%d and %d calls after the first is back", h.clients["a"].count(), h.clients["b"].count())
		}
		if n := testutil.ToFloat64(h.metrics.refreshes.WithLabelValues("sandboxes", string(ResultSuccess))); n != 2 {
			t.Errorf("%v successes under the label", n)
		}
	})
}

func TestConfigValidate(t *testing.T) {
	if err := DefaultConfig().validate(); err != nil {
		t.Error(err)
	}
	err := Config{}.validate()
	for _, field := range []string{"Concurrency", "CallTimeout", "BackoffMin", "ParkAfter", "ParkInterval", "ReadyInterval", "ResyncInterval", "ShutdownTimeout"} {
		if err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("no word about %s: %v", field, err)
		}
	}
	if _, err := New(DefaultConfig(), nil, Deps{}); err == nil {
		t.Error("no registry is accepted")
	}
}

func TestMetricsAreThereFromTheStart(t *testing.T) {
	h := newHarness(t, "a")
	h.metrics.InitAgentServer("a")
	if problems, err := testutil.GatherAndLint(h.gatherer); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	want := map[string]int{
		"mcp_sidecar_refreshes_total":                        len(Results()),
		"mcp_sidecar_refreshes_failed_total":                 len(Reasons()),
		"mcp_sidecar_refresh_requests_total":                 1,
		"mcp_sidecar_refresh_requests_failed_total":          len(requestReasons()),
		"mcp_sidecar_refresh_request_duration_seconds":       1,
		"mcp_sidecar_refresh_convergence_seconds":            1,
		"mcp_sidecar_refreshes_in_flight":                    1,
		"mcp_sidecar_refresh_last_success_timestamp_seconds": 1,
		"mcp_sidecar_applied_total":                          2,
		"mcp_sidecar_reconcile_queue_depth":                  1,
		"mcp_sidecar_reconcile_workers":                      1,
		"mcp_sidecar_reconcile_workers_busy":                 1,
		"mcp_sidecar_reconcile_duration_seconds":             1,
		"mcp_sidecar_reconcile_last_run_timestamp_seconds":   1,
		"mcp_sidecar_panics_total":                           1,
	}
	families, err := h.gatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, f := range families {
		got[f.GetName()] = len(f.GetMetric())
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	NewMetrics(nil)
	if m := newPanics(h.gatherer); m != h.metrics.panics {
		t.Error("a second component does not share the counter of panics")
	}
}

func TestShortOutageIsOverSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		h.clients["a"].set(failing(ReasonNetwork, 0))
		ids := h.add("a", 500)
		h.settle("default")
		defer h.run()()
		after(5 * time.Second)
		h.clients["a"].set(ok)
		after(10 * time.Second)
		if diff := cmp.Diff(map[conversation.State]int{conversation.StateCurrent: 500}, h.states(ids)); diff != "" {
			t.Error(diff)
		}
	})
}
