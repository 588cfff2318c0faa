package rules

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
	"github.com/mcp-sidecar/mcp-sidecar/tools/charttest/binary"
)

func alertNamed(name string) func(monitoringv1.Rule) bool {
	return func(r monitoringv1.Rule) bool { return r.Alert == name }
}

// exposed are the metrics of a sidecar: by name, the values of each label.
type exposed map[string]map[string]map[string]bool

// scrape starts a sidecar with two servers and two agent servers, none of which is there, and reads its metrics. So
// it also shows that a sidecar without any backend is well.
func scrape(t *testing.T) exposed {
	t.Helper()
	dir := t.TempDir()
	sidecar, err := binary.Build(t.Context(), repository, dir)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "config.yaml")
	away := proc.ReserveAddr(t)
	text := strings.ReplaceAll(`servers:
- {name: one, path: /one, upstream: "http://AWAY/mcp"}
- {name: two, path: /two, upstream: "http://AWAY/mcp"}
agentServers:
- {name: first, url: "http://AWAY"}
- {name: second, url: "http://AWAY"}
`, "AWAY", away)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	ops := proc.ReserveAddr(t)
	proc.Start(t, sidecar, "run", "--config", file, "--state", filepath.Join(dir, "state.db"),
		"--listen", proc.ReserveAddr(t), "--admin-listen", proc.ReserveAddr(t), "--ops-listen", ops)
	proc.Eventually(t, "the sidecar to be ready without a backend", func() bool {
		status, _ := get(t, "http://"+ops+"/readyz")
		return status == http.StatusOK
	})
	for _, path := range []string{"/livez", "/startupz"} {
		if status, body := get(t, "http://"+ops+path); status != http.StatusOK {
			t.Errorf("%s without a backend: %d %s", path, status, body)
		}
	}
	_, body := get(t, "http://"+ops+"/metrics")
	all := exposed{}
	series := regexp.MustCompile(`(?m)^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? `)
	label := regexp.MustCompile(`(\w+)="((?:[^"\\]|\\.)*)"`)
	for _, m := range series.FindAllStringSubmatch(body, -1) {
		if all[m[1]] == nil {
			all[m[1]] = map[string]map[string]bool{}
		}
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if all[m[1]][l[1]] == nil {
				all[m[1]][l[1]] = map[string]bool{}
			}
			all[m[1]][l[1]][l[2]] = true
		}
	}
	return all
}

// get returns status and body of an answer, 0 without one.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(body)
}

// Alerts and dashboard name only metrics that the sidecar has from its start, labels that these have, and values that
// these can have.
func TestMetricsExist(t *testing.T) {
	t.Parallel()
	all := scrape(t)
	queries := map[string]string{}
	for _, r := range alerts(t) {
		queries["alert "+r.Alert] = r.Expr.String()
	}
	for i, expr := range dashboard(t).expressions() {
		queries[fmt.Sprintf("query %d of the dashboard", i)] = expr
	}
	for _, v := range dashboard(t).Templating.List {
		queries["variable "+v.Name] = v.Definition
	}
	named := regexp.MustCompile(`\b((?:mcp_sidecar|process|go)_\w+)(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"`)
	for where, query := range queries {
		found := named.FindAllStringSubmatch(query, -1)
		if len(found) == 0 && where != "variable datasource" {
			t.Errorf("%s names no metric: %s", where, query)
		}
		for _, m := range found {
			labels, ok := all[m[1]]
			if !ok {
				t.Errorf("%s: the sidecar has no metric %s", where, m[1])
				continue
			}
			for _, l := range matcher.FindAllStringSubmatch(m[2], -1) {
				if err := known(labels, l[1], l[3]); err != nil {
					t.Errorf("%s: %s: %v", where, m[1], err)
				}
			}
		}
	}
	for _, text := range []string{"rules_test.yaml", "../../../docs/runbooks.md"} {
		for _, name := range regexp.MustCompile(`mcp_sidecar_\w+`).FindAllString(string(read(t, filepath.Join(files, text))), -1) {
			if _, ok := all[name]; !ok && all[name+"_count"] == nil {
				t.Errorf("%s: the sidecar has no metric %s", text, name)
			}
		}
	}
}

// known tells whether a label of a metric can have a value, or each alternative of a regular expression.
func known(labels map[string]map[string]bool, name, value string) error {
	if slices.Contains([]string{"namespace", "pod"}, name) {
		return nil // labels of the target
	}
	values, ok := labels[name]
	if !ok {
		return fmt.Errorf("there is no label %s", name)
	}
	for alternative := range strings.SplitSeq(value, "|") {
		if name == "le" {
			alternative = strings.TrimSuffix(alternative, `(\\.0)?`)
		}
		if !values[alternative] {
			return fmt.Errorf("%s is never %q", name, alternative)
		}
	}
	return nil
}
