package charttest

import (
	"context"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// rendered are the objects of every value set.
var rendered = sync.OnceValues(func() (map[string]objects, error) {
	all := map[string]objects{}
	files, err := filepath.Glob(filepath.Join(chartDir, "mcp-sidecar", "ci", "*-values.yaml"))
	if err != nil {
		return nil, err
	}
	for _, file := range files {
		manifests, err := rendering{values: []string{file}}.template(context.Background())
		if err != nil {
			return nil, err
		}
		if all[strings.TrimSuffix(filepath.Base(file), "-values.yaml")], err = decode(manifests); err != nil {
			return nil, err
		}
	}
	return all, nil
})

// workloads returns the objects of every value set that has a pod. They must not be changed.
func workloads(t *testing.T) map[string]objects {
	t.Helper()
	all, err := rendered()
	if err != nil {
		t.Fatal(err)
	}
	all = maps.Clone(all)
	maps.DeleteFunc(all, func(_ string, o objects) bool { return !has[*appsv1.Deployment](o) })
	if len(all) < 4 {
		t.Fatalf("only %d value sets have a pod", len(all))
	}
	return all
}

func TestPodHardening(t *testing.T) {
	t.Parallel()
	for name, all := range workloads(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := pod(t, all).Spec
			c := sidecarOf(t, spec)
			s := c.SecurityContext
			if s == nil || s.RunAsNonRoot == nil || !*s.RunAsNonRoot || s.RunAsUser == nil || *s.RunAsUser == 0 ||
				s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem ||
				s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || *s.Privileged ||
				!slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) || len(s.Capabilities.Add) > 0 ||
				s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Errorf("security context: %+v", s)
			}
			if c.TerminationMessagePolicy != corev1.TerminationMessageFallbackToLogsOnError {
				t.Errorf("terminationMessagePolicy is %q", c.TerminationMessagePolicy)
			}
			if spec.AutomountServiceAccountToken == nil {
				t.Error("automountServiceAccountToken isn't set")
			}
			for _, e := range c.Env {
				if e.ValueFrom != nil && e.ValueFrom.SecretKeyRef != nil {
					t.Errorf("%s is a Secret in the environment", e.Name)
				}
			}
			for _, m := range c.VolumeMounts {
				if writable := m.Name == "mcp-sidecar-state"; !writable && !m.ReadOnly {
					t.Errorf("%s is mounted writable", m.Name)
				}
			}
		})
	}
	if *pod(t, render(t, rendering{})).Spec.AutomountServiceAccountToken {
		t.Error("the pod has a service account token by default")
	}
}

// What is read again on change must be mounted as a directory: a subPath mount never sees a change.
func TestMountsAreDirectories(t *testing.T) {
	t.Parallel()
	for name, all := range workloads(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := pod(t, all).Spec
			c := sidecarOf(t, spec)
			volumes := map[string]corev1.Volume{}
			for _, v := range spec.Volumes {
				if _, ok := volumes[v.Name]; ok {
					t.Errorf("volume %s is there twice", v.Name)
				}
				volumes[v.Name] = v
			}
			for _, m := range c.VolumeMounts {
				if m.SubPath != "" || m.SubPathExpr != "" {
					t.Errorf("%s is mounted by subPath", m.Name)
				}
				if _, ok := volumes[m.Name]; !ok {
					t.Errorf("there is no volume %s", m.Name)
				}
			}
			for _, arg := range c.Args {
				flag, file, ok := strings.Cut(arg, "=/")
				if !ok {
					continue
				}
				if !slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return strings.HasPrefix("/"+file, m.MountPath+"/") }) {
					t.Errorf("%s names /%s, which is in no volume", flag, file)
				}
			}
			if c := volumes["mcp-sidecar-config"]; c.ConfigMap == nil || c.ConfigMap.Name != find[*corev1.ConfigMap](t, all, "-config").Name {
				t.Errorf("volume of the configuration: %+v", c)
			}
		})
	}
}

// The probes ask for different things, none of them of the backend, and at an address that the sidecar listens on.
func TestProbes(t *testing.T) {
	t.Parallel()
	for name, all := range workloads(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sidecarOf(t, pod(t, all).Spec)
			ops := port(t, c, "mcp-ops")
			for path, p := range map[string]*corev1.Probe{"/startupz": c.StartupProbe, "/livez": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
				if p == nil || p.HTTPGet == nil || p.HTTPGet.Path != path || p.HTTPGet.Port != intstr.FromInt32(ops) || p.HTTPGet.Host != "" {
					t.Errorf("probe of %s: %+v", path, p)
				}
			}
			if want := fmt.Sprintf("--ops-listen=[$(POD_IP)]:%d", ops); !slices.Contains(c.Args, want) {
				t.Errorf("no %s in %q", want, c.Args)
			}
			if want := fmt.Sprintf("--listen=:%d", port(t, c, "mcp-sidecar")); !slices.Contains(c.Args, want) {
				t.Errorf("no %s in %q", want, c.Args)
			}
			// A busy process must not be restarted before it is out of the Service.
			ready := c.ReadinessProbe.PeriodSeconds * c.ReadinessProbe.FailureThreshold
			if live := c.LivenessProbe.PeriodSeconds * c.LivenessProbe.FailureThreshold; live <= ready {
				t.Errorf("liveness fails after %d s, readiness after %d s", live, ready)
			}
		})
	}
}

// The backend starts after the sidecar's startup probe, and ends before the sidecar. The sidecar must not wait for it, nor the
// other way round.
func TestNoDeadlock(t *testing.T) {
	t.Parallel()
	for _, set := range []string{"sidecar", "full"} {
		all := render(t, rendering{values: []string{valueSets(t)[set]}})
		spec := pod(t, all).Spec
		if len(spec.InitContainers) != 1 || spec.InitContainers[0].Name != "mcp-sidecar" || spec.InitContainers[0].RestartPolicy == nil {
			t.Fatalf("%s: init containers: %+v", set, spec.InitContainers)
		}
		if len(spec.Containers) != 1 || spec.Containers[0].Name != "backend" {
			t.Fatalf("%s: containers: %+v", set, spec.Containers)
		}
		sidecar, backend := spec.InitContainers[0], spec.Containers[0]
		if path := sidecar.StartupProbe.HTTPGet.Path; path != "/startupz" {
			t.Errorf("%s: the startup probe asks %s", set, path)
		}
		if sidecar.Lifecycle.PostStart != nil {
			t.Errorf("%s: a postStart hook delays the backend", set)
		}
		if p := backend.ReadinessProbe; set == "sidecar" && p != nil {
			t.Errorf("the backend, which may listen on loopback only, has a readiness probe by default: %+v", p)
		}
		if slices.Equal(sidecar.Ports, backend.Ports) {
			t.Errorf("%s: the same ports", set)
		}
	}
}

// No call is lost at a rollout: the next pod is ready first, the backend goes on until nobody calls, and there is time to finish.
func TestRollout(t *testing.T) {
	t.Parallel()
	for name, all := range workloads(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := find[*appsv1.Deployment](t, all, "")
			spec := d.Spec.Template.Spec
			c := sidecarOf(t, spec)
			admin := ""
			for _, a := range c.Args {
				if rest, ok := strings.CutPrefix(a, "--admin-listen="); ok {
					admin = rest
				}
			}
			if !strings.HasPrefix(admin, "127.0.0.1:") {
				t.Errorf("the admin API listens on %q", admin)
			}
			want := []string{"mcp-sidecar", "quiesce", "--admin=http://" + admin}
			if h := c.Lifecycle; h == nil || h.PreStop == nil || h.PreStop.Exec == nil || !slices.Equal(h.PreStop.Exec.Command, want) {
				t.Errorf("preStop: %+v", h)
			}
			need := drain(t, all)
			for _, b := range spec.Containers {
				if b.Name != "backend" {
					continue
				}
				if b.Lifecycle == nil || b.Lifecycle.PreStop == nil || b.Lifecycle.PreStop.Sleep == nil {
					t.Fatalf("the backend ends at once: %+v", b.Lifecycle)
				}
				need += b.Lifecycle.PreStop.Sleep.Seconds
			}
			if grace := *spec.TerminationGracePeriodSeconds; grace <= need+15 {
				t.Errorf("terminationGracePeriodSeconds is %d, and draining takes %d s", grace, need)
			}
			if d.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
				if d.Spec.Strategy.RollingUpdate != nil {
					t.Error("strategy Recreate with rollingUpdate")
				}
				return
			}
			if r := d.Spec.Strategy.RollingUpdate; r == nil || r.MaxUnavailable.String() != "0" || r.MaxSurge == nil || r.MaxSurge.String() == "0" {
				t.Errorf("rolling update: %+v", r)
			}
		})
	}
	old := pod(t, render(t, rendering{version: "1.29.0"})).Spec.Containers[0].Lifecycle.PreStop
	if old.Sleep != nil || old.Exec == nil {
		t.Errorf("Kubernetes 1.29 has no sleep action, and preStop is %+v", old)
	}
}

// drain returns how many seconds the sidecar may take to drain, by its configuration.
func drain(t *testing.T, all objects) int64 {
	t.Helper()
	var c struct {
		Delay   string `json:"drainDelay"`
		Timeout string `json:"drainTimeout"`
	}
	if err := yaml.Unmarshal([]byte(find[*corev1.ConfigMap](t, all, "-config").Data["config.yaml"]), &c); err != nil {
		t.Fatal(err)
	}
	return seconds(t, c.Delay) + seconds(t, c.Timeout)
}

// seconds reads a duration.
func seconds(t *testing.T, s string) int64 {
	t.Helper()
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return int64(d / time.Second)
}

func port(t *testing.T, c corev1.Container, name string) int32 {
	t.Helper()
	for _, p := range c.Ports {
		if p.Name == name {
			return p.ContainerPort
		}
	}
	t.Fatalf("container %s has no port %s", c.Name, name)
	return 0
}

// Port names of native sidecars aren't known everywhere: Services and policies use numbers.
func TestPortsAreNumbers(t *testing.T) {
	t.Parallel()
	for name, all := range workloads(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := sidecarOf(t, pod(t, all).Spec)
			for _, o := range all {
				switch o := o.(type) {
				case *corev1.Service:
					for _, p := range o.Spec.Ports {
						if p.TargetPort.Type != intstr.Int || !slices.ContainsFunc(c.Ports, func(cp corev1.ContainerPort) bool { return cp.ContainerPort == p.TargetPort.IntVal }) {
							t.Errorf("Service %s: target port %s", o.Name, p.TargetPort.String())
						}
						if admin := strings.HasSuffix(o.Name, "-metrics"); !admin && p.TargetPort.IntVal == port(t, c, "mcp-ops") {
							t.Errorf("Service %s exposes the ops port", o.Name)
						}
					}
				case *networkingv1.NetworkPolicy:
					for _, rule := range o.Spec.Ingress {
						for _, p := range rule.Ports {
							if p.Port.Type != intstr.Int {
								t.Errorf("network policy: port %s", p.Port.String())
							}
						}
					}
				}
			}
		})
	}
}

// What is selected is there: labels of the pod, names of ports.
func TestSelectors(t *testing.T) {
	t.Parallel()
	all := render(t, rendering{values: []string{valueSets(t)["full"]}})
	p := pod(t, all)
	selects := map[string]map[string]string{
		"Deployment":          find[*appsv1.Deployment](t, all, "").Spec.Selector.MatchLabels,
		"Service":             find[*corev1.Service](t, all, "front").Spec.Selector,
		"metrics Service":     find[*corev1.Service](t, all, "-metrics").Spec.Selector,
		"PodDisruptionBudget": find[*policyv1.PodDisruptionBudget](t, all, "").Spec.Selector.MatchLabels,
		"NetworkPolicy":       find[*networkingv1.NetworkPolicy](t, all, "").Spec.PodSelector.MatchLabels,
		"PodMonitor":          find[*monitoringv1.PodMonitor](t, all, "").Spec.Selector.MatchLabels,
	}
	for who, labels := range selects {
		if len(labels) == 0 {
			t.Errorf("%s selects everything", who)
		}
		for k, v := range labels {
			if p.Labels[k] != v {
				t.Errorf("%s selects %s=%s, and the pod has %q", who, k, v, p.Labels[k])
			}
		}
	}
	service := find[*corev1.Service](t, all, "-metrics")
	monitor := find[*monitoringv1.ServiceMonitor](t, all, "").Spec
	for k, v := range monitor.Selector.MatchLabels {
		if service.Labels[k] != v {
			t.Errorf("ServiceMonitor selects %s=%s, and the Service has %q", k, v, service.Labels[k])
		}
	}
	if monitor.Endpoints[0].Port != service.Spec.Ports[0].Name {
		t.Errorf("ServiceMonitor wants port %q", monitor.Endpoints[0].Port)
	}
	endpoint := find[*monitoringv1.PodMonitor](t, all, "").Spec.PodMetricsEndpoints[0]
	if port(t, sidecarOf(t, p.Spec), *endpoint.Port) != 19090 || endpoint.Path != "/metrics" {
		t.Errorf("PodMonitor: %+v", endpoint)
	}
}

func TestMemoryLimit(t *testing.T) {
	t.Parallel()
	for limit, want := range map[string]string{
		"256Mi": "241591910", "1Gi": "966367641", "100M": "90000000", "1048576": "943718", `{}`: "",
	} {
		set := "sidecar.resources.limits.memory=\"" + limit + `"`
		if limit == "{}" {
			set = "sidecar.resources={\"limits\":null}"
		}
		got := ""
		for _, e := range sidecarOf(t, pod(t, render(t, rendering{set: []string{set}})).Spec).Env {
			if e.Name == "GOMEMLIMIT" {
				got = e.Value
			}
		}
		if got != want {
			t.Errorf("limit %s: GOMEMLIMIT is %q, want %q", limit, got, want)
		}
	}
}

// A change that running pods take up replaces none of them; one that needs a restart does.
func TestOnlyWhatNeedsARestartReplacesPods(t *testing.T) {
	t.Parallel()
	template := func(set ...string) corev1.PodTemplateSpec { return pod(t, render(t, rendering{set: set})) }
	before := template()
	if diff := cmp.Diff(before, template("sidecar.config.hold=10s", "sidecar.drain.delaySeconds=6")); diff != "" {
		t.Errorf("pods are replaced:\n%s", diff)
	}
	if cmp.Equal(before, template("sidecar.config.logFormat=text")) {
		t.Error("pods stay")
	}
}
