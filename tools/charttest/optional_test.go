package charttest

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

// The chart ships the alerts of the file, with what the values change, and nothing is lost on the way.
func TestPrometheusRule(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(filepath.Join(repository, "charts/mcp-sidecar/files/rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want monitoringv1.PrometheusRuleSpec
	if err := yaml.UnmarshalStrict(b, &want); err != nil {
		t.Fatal(err)
	}
	all := render(t, rendering{values: []string{valueSets(t)["monitoring"]}})
	got := find[*monitoringv1.PrometheusRule](t, all, "").Spec
	rules := want.Groups[0].Rules
	absent := func(r monitoringv1.Rule) bool { return r.Alert == "McpSidecarAbsent" }
	want.Groups[0].Rules = slices.DeleteFunc(slices.Clone(rules), absent)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("by default (-file +chart):\n%s", diff)
	}

	want.Groups[0].Rules = nil
	for _, r := range rules {
		switch r.Alert {
		case "McpSidecarRefreshUnsupported":
			continue
		case "McpSidecarBackendDown":
			longer := monitoringv1.Duration("10m")
			r.For, r.Labels = &longer, maps.Clone(r.Labels)
			r.Labels["severity"] = "warning"
		}
		want.Groups[0].Rules = append(want.Groups[0].Rules, r)
	}
	rule := find[*monitoringv1.PrometheusRule](t, render(t, rendering{values: []string{valueSets(t)["full"]}}), "")
	if diff := cmp.Diff(want, rule.Spec); diff != "" {
		t.Errorf("with other values (-want +got):\n%s", diff)
	}
	if rule.Labels["release"] != "prometheus" {
		t.Errorf("labels: %v", rule.Labels)
	}
}

func TestMonitoringModeHasNoWorkload(t *testing.T) {
	t.Parallel()
	all := render(t, rendering{values: []string{valueSets(t)["monitoring"]}})
	if len(all) != 2 || has[*appsv1.Deployment](all) {
		t.Errorf("%d objects", len(all))
	}
	dashboard := find[*corev1.ConfigMap](t, all, "-dashboard")
	if dashboard.Labels["grafana_dashboard"] != "1" {
		t.Errorf("labels: %v", dashboard.Labels)
	}
	want, err := os.ReadFile(filepath.Join(repository, "charts/mcp-sidecar/files/dashboards/mcp-sidecar.json"))
	if err != nil {
		t.Fatal(err)
	}
	got := dashboard.Data["mcp-sidecar.json"]
	if !json.Valid([]byte(got)) || strings.TrimSpace(got) != strings.TrimSpace(string(want)) {
		t.Error("the dashboard isn't the one of the file")
	}
}

// A network policy closes the backend's port, and lets nobody to the admin API.
func TestNetworkPolicy(t *testing.T) {
	t.Parallel()
	policy := find[*networkingv1.NetworkPolicy](t, render(t, rendering{set: []string{"networkPolicy.enabled=true"}}), "").Spec
	var ports []int32
	for _, rule := range policy.Ingress {
		if rule.From != nil {
			t.Errorf("from %+v by default", rule.From)
		}
		for _, p := range rule.Ports {
			ports = append(ports, p.Port.IntVal)
		}
	}
	if !slices.Equal(ports, []int32{8080, 9090}) || !slices.Equal(policy.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress}) {
		t.Errorf("open ports %v, types %v", ports, policy.PolicyTypes)
	}
	policy = find[*networkingv1.NetworkPolicy](t, render(t, rendering{values: []string{valueSets(t)["full"]}}), "").Spec
	if len(policy.Ingress) != 2 || len(policy.Ingress[0].From) != 1 || len(policy.Ingress[0].Ports) != 2 || len(policy.Ingress[1].From) != 1 || len(policy.Egress) != 1 {
		t.Errorf("with peers: %+v", policy)
	}
}

func TestState(t *testing.T) {
	t.Parallel()
	volume := func(all objects) corev1.VolumeSource {
		for _, v := range pod(t, all).Spec.Volumes {
			if v.Name == "mcp-sidecar-state" {
				return v.VolumeSource
			}
		}
		return corev1.VolumeSource{}
	}
	if v := volume(render(t, rendering{})); v.EmptyDir == nil || v.EmptyDir.SizeLimit.String() != "128Mi" {
		t.Errorf("by default: %+v", v)
	}
	all := render(t, rendering{values: []string{valueSets(t)["persistent"]}})
	claim := find[*corev1.PersistentVolumeClaim](t, all, "-state")
	if v := volume(all); v.PersistentVolumeClaim == nil || v.PersistentVolumeClaim.ClaimName != claim.Name {
		t.Errorf("with a claim: %+v", v)
	}
	if s := pod(t, all).Spec.SecurityContext; s.FSGroup == nil || *s.FSGroup != *sidecarOf(t, pod(t, all).Spec).SecurityContext.RunAsUser {
		t.Errorf("the claim isn't the sidecar's to write: %+v", s)
	}
}

// The notes say what has to be known, in every mode.
func TestNotes(t *testing.T) {
	t.Parallel()
	for set, want := range map[string][]string{
		"sidecar":    {"http://tools-mcp-sidecar.ns:8080/mcp", "Secret tools-mcp-sidecar-session-key", "every rendering has\nanother key", "No agent server is configured", "Nothing scrapes"},
		"standalone": {"http://tools-mcp-sidecar.ns:8080/github/mcp", "your Secret mcp-session-key"},
		"full":       {"http://front.ns:80/tools/mcp"},
		"monitoring": {"nothing else: installed"},
	} {
		out, err := helm(t.Context(), "install", "tools", filepath.Join(chartDir, "mcp-sidecar"), "--namespace", "ns", "--dry-run=client", "--values", valueSets(t)[set])
		if err != nil {
			t.Fatal(err)
		}
		_, notes, _ := strings.Cut(out, "NOTES:")
		for _, text := range want {
			if !strings.Contains(notes, text) {
				t.Errorf("%s: no %q in the notes:\n%s", set, text, notes)
			}
		}
	}
}
