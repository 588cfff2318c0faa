package charttest

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestLint(t *testing.T) {
	t.Parallel()
	charts := map[string][]string{"library": {filepath.Join(chartDir, "mcp-sidecar-lib")}, "own": {filepath.Join(chartDir, "own")}}
	for name, file := range valueSets(t) {
		charts[name] = []string{filepath.Join(chartDir, "mcp-sidecar"), "--values", file}
	}
	for name, args := range charts {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if out, err := helm(t.Context(), append([]string{"lint", "--strict"}, args...)...); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}

// Whatever the values and the version, the API server would take what is rendered.
func TestRender(t *testing.T) {
	t.Parallel()
	for name, file := range valueSets(t) {
		for _, version := range kubeVersions() {
			t.Run(name+"/"+version, func(t *testing.T) {
				t.Parallel()
				all := render(t, rendering{values: []string{file}, version: version})
				if len(all) == 0 {
					t.Fatal("nothing was rendered")
				}
				names := map[string]bool{}
				for _, o := range all {
					kind := o.GetObjectKind().GroupVersionKind().Kind
					if o.GetNamespace() != "ns" {
						t.Errorf("%s %s is in namespace %q", kind, o.GetName(), o.GetNamespace())
					}
					if id := kind + "/" + o.GetName(); names[id] {
						t.Errorf("%s is there twice", id)
					} else {
						names[id] = true
					}
				}
			})
		}
	}
}

func TestDefaultsRenderNoOptionalObject(t *testing.T) {
	t.Parallel()
	var kinds []string
	for _, o := range render(t, rendering{}) {
		kinds = append(kinds, o.GetObjectKind().GroupVersionKind().Kind)
	}
	if diff := cmp.Diff([]string{"Secret", "ConfigMap", "Service", "Deployment"}, kinds); diff != "" {
		t.Errorf("kinds (-want +got):\n%s", diff)
	}
}

// A chart of somebody's own gets the very same container as the application chart.
func TestBothRoutesRenderTheSameContainer(t *testing.T) {
	t.Parallel()
	var containers []string
	for _, r := range []rendering{{}, {chart: "own"}} {
		out, err := r.template(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		containers = append(containers, item(t, out, "      initContainers:\n"))
	}
	if diff := cmp.Diff(containers[0], containers[1]); diff != "" {
		t.Errorf("containers of the application chart and of an own one (-app +own):\n%s", diff)
	}
	golden := filepath.Join("testdata", "container.yaml")
	if *update {
		if err := os.WriteFile(golden, []byte(containers[0]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), containers[0]); diff != "" {
		t.Errorf("the container (-want +got; go test -update takes it over):\n%s", diff)
	}
}

// item returns the lines of a manifest below a heading, up to the next line that isn't indented deeper.
func item(t *testing.T, manifest, heading string) string {
	t.Helper()
	_, rest, ok := strings.Cut(manifest, heading)
	if !ok {
		t.Fatalf("no %q in\n%s", heading, manifest)
	}
	indent := strings.Repeat(" ", len(heading)-len(strings.TrimLeft(heading, " "))+1)
	var lines strings.Builder
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, indent) {
			break
		}
		lines.WriteString(line)
	}
	return lines.String()
}

// The native sidecar and the container of the standalone mode differ in nothing but being one.
func TestStandaloneContainer(t *testing.T) {
	t.Parallel()
	native := sidecarOf(t, pod(t, render(t, rendering{})).Spec)
	alone := sidecarOf(t, pod(t, render(t, rendering{set: []string{
		"mode=standalone", "sidecar.config.upstream=http://127.0.0.1:9000/mcp",
	}})).Spec)
	if native.RestartPolicy == nil || *native.RestartPolicy != corev1.ContainerRestartPolicyAlways {
		t.Errorf("restartPolicy of the native sidecar is %v", native.RestartPolicy)
	}
	native.RestartPolicy = nil
	if diff := cmp.Diff(native, alone); diff != "" {
		t.Errorf("containers (-native +standalone):\n%s", diff)
	}
}

// Versions and defaults that stand in several places are the same.
func TestVersionsAgree(t *testing.T) {
	t.Parallel()
	type chart struct {
		Version     string `json:"version"`
		AppVersion  string `json:"appVersion"`
		KubeVersion string `json:"kubeVersion"`
		Dependency  []struct {
			Version string `json:"version"`
		} `json:"dependencies"`
	}
	read := func(file string, into any) {
		t.Helper()
		b, err := os.ReadFile(filepath.Join(repository, "charts", file))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(b, into); err != nil {
			t.Fatal(err)
		}
	}
	var app, lib chart
	var values struct {
		Image struct {
			Tag string `json:"tag"`
		} `json:"image"`
	}
	read("mcp-sidecar/Chart.yaml", &app)
	read("mcp-sidecar-lib/Chart.yaml", &lib)
	read("mcp-sidecar-lib/values.yaml", &values)
	if app.AppVersion != lib.AppVersion || values.Image.Tag != lib.AppVersion {
		t.Errorf("appVersion is %q and %q, the image's tag %q: all must be the release's version", app.AppVersion, lib.AppVersion, values.Image.Tag)
	}
	// The program's version is its commit's tag. Between two tags it is none of the charts'.
	tags, err := exec.CommandContext(t.Context(), "git", "-C", repository, "tag", "--points-at", "HEAD", "--list", "v*").Output()
	if err != nil {
		t.Fatalf("asking git for the version: %v", err)
	}
	for tag := range strings.FieldsSeq(string(tags)) {
		if tag != "v"+lib.AppVersion {
			t.Errorf("appVersion is %q, and the program's version is %s", lib.AppVersion, tag)
		}
	}
	if app.Dependency[0].Version != lib.Version || app.KubeVersion != lib.KubeVersion {
		t.Errorf("the application chart wants library %q for %s, which is %q for %s", app.Dependency[0].Version, app.KubeVersion, lib.Version, lib.KubeVersion)
	}
	if out, err := (rendering{version: "1.28.0"}).template(t.Context()); err == nil || !strings.Contains(err.Error(), "1.29") {
		t.Errorf("Kubernetes 1.28 has no native sidecars, and the chart says: %v\n%s", err, out)
	}
}
