package main

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// The part of docs/metrics.md between these lines is made here.
const (
	generatedBegin = "<!-- begin: made by `make docs` -->\n"
	generatedEnd   = "<!-- end -->\n"
)

// TestMetricsAreDocumented compares docs/metrics.md with what the registry has,
// or with UPDATE_DOCS set writes it.
func TestMetricsAreDocumented(t *testing.T) {
	const file = "../../docs/metrics.md"
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(content), generatedBegin)
	stale, after, ok2 := strings.Cut(rest, generatedEnd)
	if !ok || !ok2 {
		t.Fatalf("%s doesn't say where the generated part is", file)
	}
	fresh := metricsTable(t)
	if os.Getenv("UPDATE_DOCS") != "" {
		writeFile(t, file, before+generatedBegin+fresh+generatedEnd+after)
		return
	}
	if diff := cmp.Diff(strings.Split(stale, "\n"), strings.Split(fresh, "\n")); diff != "" {
		t.Errorf("docs/metrics.md is stale, make docs writes it (-written +is)\n%s", diff)
	}
	for _, name := range regexp.MustCompile(`\bmcp_sidecar_\w+`).FindAllString(before+after, -1) {
		if base := regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(name, ""); !strings.Contains(fresh, "`"+name+"`") && !strings.Contains(fresh, "`"+base+"`") {
			t.Errorf("docs/metrics.md: there is no metric %s", name)
		}
	}
}

// metricsTable describes every metric of a sidecar. All label values exist from
// the start, so they are all there.
func metricsTable(t *testing.T) string {
	t.Helper()
	a := testApp(t, testConfig(t, "http://127.0.0.1:1/mcp", func(c *config.Config) {
		c.AgentServer = []string{"agents=http://127.0.0.1:1"}
	}))
	families, err := a.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("| metric | type | unit | labels | |\n|---|---|---|---|---|\n")
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), metrics.Namespace+"_") {
			continue
		}
		values := map[string][]string{}
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if !slices.Contains(values[l.GetName()], l.GetValue()) {
					values[l.GetName()] = append(values[l.GetName()], l.GetValue())
				}
			}
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), unit(f.GetName()), labels(values), f.GetHelp())
	}
	return b.String()
}

// unit is the one that a metric's name says.
func unit(name string) string {
	name = strings.TrimSuffix(name, "_total")
	switch {
	case strings.HasSuffix(name, "_timestamp_seconds"):
		return "Unix time"
	case strings.HasSuffix(name, "_seconds"):
		return "seconds"
	case strings.HasSuffix(name, "_bytes"):
		return "bytes"
	default:
		return ""
	}
}

// labels describes labels and their values. Those that come from the configuration
// and the build are named only.
func labels(values map[string][]string) string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		v := values[name]
		slices.Sort(v)
		text := "`" + name + "`"
		if !slices.Contains([]string{"server", "agent_server", "version", "revision", "goversion"}, name) {
			text += ": `" + strings.Join(v, "`, `") + "`"
		}
		all = append(all, text)
	}
	return strings.Join(all, "; ")
}
