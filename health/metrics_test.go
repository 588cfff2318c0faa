package health

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestMetricsAreThereFromTheStart(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := NewMetrics(reg)
	m.Init("a")
	m.Init("b")
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}
	series := map[string]int{}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		series[f.GetName()] = len(f.GetMetric())
	}
	want := map[string]int{
		"mcp_sidecar_backend_up":                             2,
		"mcp_sidecar_backend_last_success_timestamp_seconds": 2,
		"mcp_sidecar_backend_probe_duration_seconds":         2 * 4,
		"mcp_sidecar_backend_probes_total":                   2 * 4,
		"mcp_sidecar_backend_probes_failed_total":            2 * (7 + 11 + 11 + 15),
		"mcp_sidecar_backend_transitions_total":              2 * 2,
		"mcp_sidecar_swaps_total":                            2 * 5,
		"mcp_sidecar_schema_generation":                      2,
		"mcp_sidecar_schema_hash":                            2,
		"mcp_sidecar_schema_tools":                           2,
		"mcp_sidecar_schema_changes_total":                   2 * 3,
		"mcp_sidecar_schema_last_change_timestamp_seconds":   2,
	}
	if diff := cmp.Diff(want, series); diff != "" {
		t.Error(diff)
	}
	m.SetGeneration("a", 7)
	if got := testutil.ToFloat64(m.generation.WithLabelValues("a")); got != 7 {
		t.Errorf("generation %v", got)
	}
	m.Forget("a")
	m.Forget("b")
	if families, err = reg.Gather(); err != nil || len(families) > 0 {
		t.Errorf("%d families are left, %v", len(families), err)
	}
	NewMetrics(nil).Init("unregistered")
}

func TestLow48(t *testing.T) {
	for hash, want := range map[string]float64{
		"sha256:00000000000000000000000000000000000000000000000000000000000000ff": 255,
		"sha256:ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff": 1<<48 - 1,
		"": 0, "nonsense": 0,
	} {
		if got := low48(hash); got != want {
			t.Errorf("%s: %v, want %v", hash, got, want)
		}
	}
}

func TestEveryReasonIsCounted(t *testing.T) {
	of := map[Reason]bool{}
	for _, p := range Probes() {
		for _, r := range reasonsOfProbe(p) {
			of[r] = true
		}
	}
	if len(of) != len(Reasons()) {
		t.Errorf("%d reasons are counted, %d listed", len(of), len(Reasons()))
	}
	for _, r := range Reasons() {
		if !of[r] {
			t.Errorf("%s is never counted", r)
		}
	}
}
