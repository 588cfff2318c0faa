package rules

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// promtool runs promtool, which Debian has in its package prometheus.
func promtool(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), proc.Need(t, "promtool"), args...).CombinedOutput()
	if err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func TestRulesAreValid(t *testing.T) {
	t.Parallel()
	promtool(t, "check", "rules", "--lint=all", "--lint-fatal", filepath.Join(files, "rules.yaml"))
}

func TestRulesBehave(t *testing.T) {
	t.Parallel()
	promtool(t, "test", "rules", filepath.Join(files, "rules_test.yaml"))
}

// Every alert is seen not to fire, to fire and to resolve.
func TestEveryAlertIsTested(t *testing.T) {
	t.Parallel()
	var suite struct {
		Tests []struct {
			Checks []struct {
				Alert  string `json:"alertname"`
				Alerts []struct {
					Labels map[string]string `json:"exp_labels"`
				} `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		} `json:"tests"`
	}
	if err := yaml.Unmarshal(read(t, filepath.Join(files, "rules_test.yaml")), &suite); err != nil {
		t.Fatal(err)
	}
	phases := map[string]string{} // by alert and severity: of one test, whether each check expects it
	for _, test := range suite.Tests {
		seen := map[string]string{}
		for _, check := range test.Checks {
			for _, rule := range alerts(t) {
				if rule.Alert != check.Alert {
					continue
				}
				key, phase := rule.Alert+"/"+rule.Labels["severity"], "0"
				for _, a := range check.Alerts {
					if a.Labels["severity"] == rule.Labels["severity"] {
						phase = "1"
					}
				}
				if !strings.HasSuffix(seen[key], phase) {
					seen[key] += phase
				}
			}
		}
		for key, s := range seen {
			if strings.Contains(s, "1") {
				phases[key] = s
			}
		}
	}
	for _, rule := range alerts(t) {
		if key := rule.Alert + "/" + rule.Labels["severity"]; phases[key] != "010" {
			t.Errorf("%s: its test sees %q, want a check before, while and after it fires", key, phases[key])
		}
	}
}

// The queries of the dashboard are valid: promtool sees them as recording rules.
func TestDashboardQueriesAreValid(t *testing.T) {
	t.Parallel()
	type rule struct {
		Record string `json:"record"`
		Expr   string `json:"expr"`
	}
	type group struct {
		Name  string `json:"name"`
		Rules []rule `json:"rules"`
	}
	g := group{Name: "dashboard"}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$namespace", ".*", "$pod", ".*")
	for i, expr := range dashboard(t).expressions() {
		g.Rules = append(g.Rules, rule{Record: fmt.Sprintf("dashboard:%d", i), Expr: variables.Replace(expr)})
	}
	b, err := yaml.Marshal(map[string]any{"groups": []group{g}})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(b), "$") {
		t.Errorf("a variable that the test doesn't know:\n%s", b)
	}
	file := filepath.Join(t.TempDir(), "dashboard.yaml")
	if err := os.WriteFile(file, b, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

func TestDashboard(t *testing.T) {
	t.Parallel()
	b := dashboard(t)
	var rows []string
	ids := map[int]bool{}
	for i, p := range b.Panels {
		if ids[p.ID] {
			t.Errorf("panel id %d is there twice", p.ID)
		}
		ids[p.ID] = true
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.FieldConfig.Defaults.Unit == "" || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 || p.Title == "" {
			t.Errorf("panel %q: unit %q, data source %q, %d queries", p.Title, p.FieldConfig.Defaults.Unit, p.Datasource.UID, len(p.Targets))
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("panel %q is wider than the page", p.Title)
		}
		for _, other := range b.Panels[:i] {
			a, o := p.GridPos, other.GridPos
			if a.X < o.X+o.W && o.X < a.X+a.W && a.Y < o.Y+o.H && o.Y < a.Y+a.H {
				t.Errorf("panels %q and %q overlap", p.Title, other.Title)
			}
		}
	}
	if want := []string{"Converge", "Backend", "Proxy", "Refresh", "Reconcile and store", "Process"}; !slices.Equal(rows, want) {
		t.Errorf("rows are %q", rows)
	}
	for _, expr := range b.expressions() {
		if strings.Contains(expr, "rate(") && !strings.Contains(expr, "[$__rate_interval]") {
			t.Errorf("a rate over a fixed range: %s", expr)
		}
	}
	if b.UID != "mcp-sidecar" {
		t.Errorf("uid is %q: links to it break", b.UID)
	}
}
