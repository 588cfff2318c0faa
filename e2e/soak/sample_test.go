//go:build soak && unix

package soak

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// measured is something that must not grow.
type measured struct {
	name   string
	series string  // "" is the number of all series
	unit   float64 // by which it is divided for people
	// It may be more in the end by this share and this much, for it differs from one
	// moment to the other.
	share, slack float64
}

func everything(d time.Duration) []measured {
	const mib = 1 << 20
	heap := 8.0 * mib
	if d < 5*time.Minute { // few collections, with up to 16 MiB between two of them
		heap *= 2
	}
	return []measured{
		{"resident MiB", "process_resident_memory_bytes", mib, 0.1, heap},
		{"heap in use MiB", "go_memstats_heap_inuse_bytes", mib, 0.1, heap},
		{"goroutines", "go_goroutines", 1, 0.1, 20},
		{"open files", "process_open_fds", 1, 0.1, 20},
		{"series", "", 1, 0, 0},
		{"conversations", `mcp_sidecar_conversations{agent_server="default",state="current"}`, 1, 0.1, 20},
		{"sessions", `mcp_sidecar_sessions{server="default"}`, 1, 0.1, 20},
	}
}

const (
	storeSeries = "mcp_sidecar_store_size_bytes"
	// perSession is how much the state may grow by each session: for a week it
	// remembers which were ended, and what became of those that a swap lost.
	perSession = 2 << 10
)

// samples are what the sidecar tells of itself, again and again.
type samples struct {
	all []map[string]float64
}

func (s *samples) take(ctx context.Context, t *testing.T, ops string, every time.Duration) {
	t.Helper()
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		page := proc.Metrics(t, "http://"+ops+"/metrics")
		page[""] = float64(len(page))
		s.all = append(s.all, page)
	}
}

// judge compares the second fifth of the time, when all has come to its usual
// level, with the last.
func (s *samples) judge(t *testing.T, d time.Duration, sessions float64) {
	t.Helper()
	fifth := len(s.all) / 5
	if fifth == 0 {
		t.Fatalf("there are only %d samples", len(s.all))
	}
	early, late := s.all[fifth:2*fifth], s.all[len(s.all)-fifth:]
	var table strings.Builder
	fmt.Fprintf(&table, "medians of the second and the last fifth, and the most at any time (%d samples)\n\n", len(s.all))
	fmt.Fprintf(&table, "| %-15s | %8s | %8s | %8s |\n| %s | %s: | %s: | %s: |\n", "", "second", "last", "most",
		strings.Repeat("-", 15), strings.Repeat("-", 7), strings.Repeat("-", 7), strings.Repeat("-", 7))
	row := func(m measured) (before, after float64) {
		before, after = median(early, m.series), median(late, m.series)
		fmt.Fprintf(&table, "| %-15s | %8.1f | %8.1f | %8.1f |\n", m.name, before/m.unit, after/m.unit, most(s.all, m.series)/m.unit)
		return before, after
	}
	for _, m := range everything(d) {
		if before, after := row(m); after > before*(1+m.share)+m.slack {
			t.Errorf("%s grew from %.1f to %.1f", m.name, before/m.unit, after/m.unit)
		}
	}
	if before, after := row(measured{name: "state MiB", series: storeSeries, unit: 1 << 20}); after-before > sessions*perSession {
		t.Errorf("the state grew from %.0f to %.0f bytes with %.0f sessions", before, after, sessions)
	}
	t.Log(table.String())
}

func median(all []map[string]float64, series string) float64 {
	values := make([]float64, 0, len(all))
	for _, s := range all {
		values = append(values, s[series])
	}
	slices.Sort(values)
	return values[len(values)/2]
}

func most(all []map[string]float64, series string) (most float64) {
	for _, s := range all {
		most = max(most, s[series])
	}
	return most
}
