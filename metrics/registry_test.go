package metrics

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func TestRegistryIsClean(t *testing.T) {
	t.Parallel()

	problems, err := testutil.GatherAndLint(NewRegistry(ReadBuild()))
	if err != nil {
		t.Fatal(err)
	}

	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestRegistryHoldsProcessAndGoMetrics(t *testing.T) {
	t.Parallel()

	reg := NewRegistry(ReadBuild())
	for _, name := range []string{"go_goroutines", "process_cpu_seconds_total", "mcp_sidecar_build_info"} {
		n, err := testutil.GatherAndCount(reg, name)
		if err != nil {
			t.Fatal(err)
		}

		if n != 1 {
			t.Errorf("%s: got %d series, want 1", name, n)
		}
	}
}

func TestBuildInfoSeries(t *testing.T) {
	t.Parallel()

	reg := prometheus.NewPedanticRegistry()
	reg.MustRegister(newBuildInfo(Build{Version: "v1.2.3", Revision: "abc", GoVersion: "go1.26.0"}))

	want := `
# HELP mcp_sidecar_build_info What was built; the value is always 1.
# TYPE mcp_sidecar_build_info gauge
mcp_sidecar_build_info{goversion="go1.26.0",revision="abc",version="v1.2.3"} 1
`
	if err := testutil.GatherAndCompare(reg, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestDurationOptsPassLint(t *testing.T) {
	t.Parallel()

	reg := prometheus.NewPedanticRegistry()
	h := prometheus.NewHistogram(DurationOpts("test_duration_seconds", "How long the test took."))
	reg.MustRegister(h)
	h.Observe(299)

	problems, err := testutil.GatherAndLint(reg)
	if err != nil {
		t.Fatal(err)
	}

	if len(problems) > 0 {
		t.Errorf("lint: %v", problems)
	}

	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}

	got := families[0].GetMetric()[0].GetHistogram()
	if b := got.GetBucket(); b[len(b)-1].GetUpperBound() != 300 || b[len(b)-1].GetCumulativeCount() != 1 {
		t.Errorf("the last classic bucket must be 300 s and hold a call of 299 s, got %v", b)
	}

	if len(got.GetPositiveSpan()) == 0 {
		t.Error("no native buckets")
	}
}
