package conversation_test

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestMetricsLint(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := conversation.NewMetrics(reg)
	store := conversation.Instrument(openStore(t, filepath.Join(t.TempDir(), "state.db")), m)
	if _, err := conversation.NewRegistry(testConfig(), conversation.RegistryDeps{Store: store, Metrics: m}); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) != 0 {
		t.Errorf("lint: %v, %v", problems, err)
	}
	conversation.NewMetrics(nil) // unregistered, and another one in the process
}

func TestInstrument(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := conversation.NewMetrics(reg)
	flaky := &flakyStore{Store: openStore(t, filepath.Join(t.TempDir(), "state.db"))}
	s := conversation.Instrument(flaky, m)
	ctx := t.Context()

	c, err := s.Put(ctx, conversation.Conversation{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, conversation.Conversation{ID: "a"}); err == nil { // a lost race is no failure
		t.Error("Put passed on no conflict")
	}
	if _, err := s.Get(ctx, "missing"); err == nil {
		t.Error("Get found something")
	}
	flaky.away.Store(true)
	if _, err := s.Put(ctx, c); err == nil {
		t.Error("Put passed on no error")
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := s.Touch(ended, nil); err == nil {
		t.Error("Touch passed on no error")
	}
	flaky.away.Store(false)
	n := 0
	for c, err := range s.All(ctx) {
		if err != nil || c.ID != "a" {
			t.Errorf("All: %+v, %v", c, err)
		}
		n++
	}
	if n != 1 {
		t.Errorf("All yielded %d", n)
	}

	for name, want := range map[string]map[string]float64{
		"mcp_sidecar_store_operations_total":        {"put": 3, "get": 1, "touch": 1, "all": 1, "delete": 0, "put_blob": 0},
		"mcp_sidecar_store_operations_failed_total": {"put": 1, "get": 0, "touch": 0, "all": 0, "delete": 0, "put_blob": 0},
	} {
		for op, value := range want {
			if got := metric(t, reg, name, op); got != value {
				t.Errorf("%s{op=%q} is %v, want %v", name, op, got, value)
			}
		}
	}
}

func TestStoreSize(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewPedanticRegistry()
	m := conversation.NewMetrics(reg)
	if got := metric(t, reg, "mcp_sidecar_store_size_bytes", ""); got != 0 {
		t.Errorf("size without a store: %v", got)
	}
	conversation.Instrument(openStore(t, filepath.Join(t.TempDir(), "state.db")), m)
	if got := metric(t, reg, "mcp_sidecar_store_size_bytes", ""); got < 4096 {
		t.Errorf("size: %v", got)
	}
}

// metric returns the value of a counter or gauge, of that with the op if there is one.
func metric(t *testing.T, reg *prometheus.Registry, name, op string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			if op == "" || m.GetLabel()[0].GetValue() == op {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s{op=%q}", name, op)
	return 0
}
