package charttest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

// Where TestMain put what all tests need.
var (
	helmPath string // the command
	chartDir string // copies of the charts, with their dependencies
	home     string // helm's own directories
)

const repository = "../.."

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "charttest-*")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	home, chartDir = filepath.Join(dir, "home"), filepath.Join(dir, "charts")
	if helmPath, err = buildHelm(ctx); err != nil {
		return 1, err
	}
	if err := os.CopyFS(chartDir, os.DirFS(repository+"/charts")); err != nil {
		return 1, err
	}
	if err := os.CopyFS(filepath.Join(chartDir, "own"), os.DirFS("testdata/own")); err != nil {
		return 1, err
	}
	for _, chart := range []string{"mcp-sidecar", "own"} {
		if err := os.RemoveAll(filepath.Join(chartDir, chart, "charts")); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return 1, err
		}
		if out, err := helm(ctx, "dependency", "build", filepath.Join(chartDir, chart)); err != nil {
			return 1, fmt.Errorf("%w\n%s", err, out)
		}
	}
	return m.Run(), nil
}

// buildHelm returns the path of the helm that this module's go.mod names. It takes minutes the first time, and is
// kept outside of the tree.
func buildHelm(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Version}}", "helm.sh/helm/v4").Output()
	if err != nil {
		return "", fmt.Errorf("looking for the version of helm: %w", err)
	}
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		user, err := os.UserHomeDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, ".cache")
	}
	path := filepath.Join(cache, "mcp-sidecar", "bin", "helm-"+strings.TrimSpace(string(out))+"-"+runtime.Version())
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fmt.Fprintln(os.Stderr, "building", filepath.Base(path)+", once")
	args := []string{"go", "build", "-trimpath", "-o", path + ".new", "helm.sh/helm/v4/cmd/helm"}
	if nice, err := exec.LookPath("nice"); err == nil {
		args = append([]string{nice}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building helm: %w\n%s", err, out)
	}
	return path, os.Rename(path+".new", path)
}

// helm runs helm, away from the user's settings, and returns what it wrote.
func helm(ctx context.Context, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, helmPath, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("helm %s: %w\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return stdout.String(), nil
}

// kubeVersions are the oldest version that the charts allow, one in the middle, and the one of our client libraries.
func kubeVersions() []string { return []string{"1.29.0", "1.33.0", "1.37.0"} }

// rendering is what helm template is asked for. The zero value is the application chart with its smallest values.
type rendering struct {
	chart   string // default mcp-sidecar
	values  []string
	set     []string
	version string // of Kubernetes
	args    []string
}

// minimal are the values that the application chart can't do without.
func minimal() []string {
	return []string{"backend.image.repository=example.com/tools", "backend.image.tag=1.2.3"}
}

func (r rendering) template(ctx context.Context) (string, error) {
	if r.chart == "" {
		r.chart = "mcp-sidecar"
	}
	if r.version == "" {
		r.version = "1.33.0"
	}
	if len(r.values) == 0 && r.chart == "mcp-sidecar" {
		r.set = append(minimal(), r.set...)
	}
	args := []string{"template", "tools", filepath.Join(chartDir, r.chart), "--namespace", "ns", "--kube-version", r.version}
	for _, v := range r.values {
		args = append(args, "--values", v)
	}
	for _, s := range r.set {
		args = append(args, "--set-json", jsonValue(s))
	}
	return helm(ctx, append(args, r.args...)...)
}

// jsonValue quotes the value of KEY=VALUE unless it is JSON already.
func jsonValue(set string) string {
	key, value, _ := strings.Cut(set, "=")
	if regexp.MustCompile(`^(-?[0-9]+|true|false|null|[\[{"].*)$`).MatchString(value) {
		return set
	}
	return key + `="` + value + `"`
}

// valueSets returns the files of values that the chart is tried with, by name.
func valueSets(t *testing.T) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chartDir, "mcp-sidecar", "ci", "*-values.yaml"))
	if err != nil || len(files) < 4 {
		t.Fatalf("value sets: %v, %v", files, err)
	}
	sets := map[string]string{}
	for _, f := range files {
		sets[strings.TrimSuffix(filepath.Base(f), "-values.yaml")] = f
	}
	return sets
}
