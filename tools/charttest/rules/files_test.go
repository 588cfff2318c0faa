package rules

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

const (
	repository    = "../../.."
	files         = repository + "/charts/mcp-sidecar/files"
	dashboardFile = files + "/dashboards/mcp-sidecar.json"
)

func read(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// alerts returns the rules of rules.yaml.
func alerts(t *testing.T) []monitoringv1.Rule {
	t.Helper()
	var spec monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(files, "rules.yaml")), &spec); err != nil {
		t.Fatal(err)
	}
	var all []monitoringv1.Rule
	for _, g := range spec.Groups {
		all = append(all, g.Rules...)
	}
	if len(all) == 0 {
		t.Fatal("rules.yaml has no rules")
	}
	return all
}

// panel is a panel of a Grafana dashboard, or one of its rows.
type panel struct {
	ID      int    `json:"id"`
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct {
		H, W, X, Y int
	} `json:"gridPos"`
	FieldConfig struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Datasource struct {
		UID string `json:"uid"`
	} `json:"datasource"`
	Targets []struct {
		Expr string `json:"expr"`
	} `json:"targets"`
}

// board is a Grafana dashboard.
type board struct {
	UID         string `json:"uid"`
	Annotations struct {
		List []struct {
			Expr string `json:"expr"`
		} `json:"list"`
	} `json:"annotations"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Type       string `json:"type"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []panel `json:"panels"`
}

func dashboard(t *testing.T) board {
	t.Helper()
	var b board
	if err := json.Unmarshal(read(t, dashboardFile), &b); err != nil {
		t.Fatal(err)
	}
	return b
}

// expressions returns every query of the dashboard.
func (b board) expressions() []string {
	var all []string
	for _, p := range b.Panels {
		for _, target := range p.Targets {
			all = append(all, target.Expr)
		}
	}
	for _, a := range b.Annotations.List {
		all = append(all, a.Expr)
	}
	return all
}
