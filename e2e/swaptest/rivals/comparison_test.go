//go:build comparison && unix

package rivals

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/install"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// The part of docs/comparison.md between these lines is made here.
const (
	document       = "../../../docs/comparison.md"
	generatedBegin = "<!-- begin: made by `make comparison UPDATE_DOCS=1` -->\n"
	generatedEnd   = "<!-- end -->\n"
)

// rival is a proxy that is compared.
type rival struct {
	name    string
	command []string
	prepare func(t *testing.T) (version, path string) // and the directories where its programs are
	flags   []string                                  // of the tool
}

func rivals(bin string) []rival {
	built := func(*testing.T) (string, string) { return "of this tree", bin }
	haproxy := []string{"env", "LISTEN={listen}", "BACKEND={backend}", "haproxy", "-db", "-f", "haproxy.cfg"}
	return []rival{
		{"mcp-sidecar", []string{
			"mcp-sidecar", "run", "--listen", "{listen}", "--upstream", "http://{backend}/mcp",
			"--ops-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--state", "{dir}/state.db",
		}, built, nil},
		{"ReverseProxy", []string{"bench", "reverse", "{listen}", "http://{backend}"}, func(*testing.T) (string, string) {
			return "net/http/httputil of " + runtime.Version() + ", started by e2e/bench", bin
		}, nil},
		{"nginx", []string{"sh", "nginx.sh", "{listen}", "{backend}", "{dir}"}, installed("nginx"), nil},
		{"HAProxy", haproxy, installed("haproxy"), nil},
		{"HAProxy, clients recover", haproxy, installed("haproxy"), []string{"--recover"}},
		{"mcp-remote", []string{
			"env", "MCP_REMOTE_CONFIG_DIR={dir}", "mcp-proxy", "--host", "{host}", "--port", "{port}", "--server", "stream", "--",
			"mcp-remote", "http://{backend}/mcp", "--allow-http", "--transport", "http-only",
		}, npm("mcp-remote", "mcp-proxy"), nil},
		{"supergateway", []string{
			"supergateway", "--stdio", "supergateway --streamableHttp http://{backend}/mcp --logLevel none",
			"--outputTransport", "streamableHttp", "--stateful", "--port", "{port}",
		}, npm("supergateway"), nil},
		{"mcp-proxy", []string{
			"mcp-proxy", "--host", "{host}", "--port", "{port}", "--pass-environment", "--",
			"mcp-proxy", "--transport", "streamablehttp", "http://{backend}/mcp",
		}, pypi, nil},
	}
}

// installed returns the version of a program of the system.
func installed(program string) func(t *testing.T) (version, path string) {
	return func(t *testing.T) (string, string) {
		t.Helper()
		return output(t, proc.Need(t, program), "-v"), ""
	}
}

// npm installs the packages, and returns the versions of some.
func npm(names ...string) func(t *testing.T) (version, path string) {
	return func(t *testing.T) (string, string) {
		t.Helper()
		npm := proc.Need(t, "npm")
		dir := install.Cached(t, "rivals/npm", []string{"package.json", "package-lock.json"}, func(dir string) {
			install.Run(t, dir, npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")
		})
		raw, err := os.ReadFile("package.json")
		if err != nil {
			t.Fatal(err)
		}
		var file struct {
			Dependencies map[string]string `json:"dependencies"`
		}
		if err := json.Unmarshal(raw, &file); err != nil {
			t.Fatal(err)
		}
		var versions []string
		for _, name := range names {
			versions = append(versions, "npm "+name+" "+file.Dependencies[name])
		}
		return strings.Join(append(versions, "Node.js "+output(t, "node", "--version")), ", "), filepath.Join(dir, "node_modules", ".bin")
	}
}

func pypi(t *testing.T) (version, path string) {
	t.Helper()
	python := install.Venv(t, "rivals/python", "requirements.txt", install.Python(t, "3.13", "3.12", "3.11", "3.14"))
	raw, err := os.ReadFile("requirements.in")
	if err != nil {
		t.Fatal(err)
	}
	return "PyPI " + strings.Replace(strings.TrimSpace(string(raw)), "==", " ", 1) + ", " + output(t, python, "--version"), filepath.Dir(python)
}

// output returns the first line of what a program says.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", name, err, out)
	}
	line, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	line, _, _ = strings.Cut(line, " - ") // of haproxy, before a URL
	return line
}

// outcome is what mcp-sidecar-swaptest --json prints, with what it was asked.
type outcome struct {
	name, version string
	flags         []string
	Command       []string
	Results       []struct{ Scenario, Asks, Result, Why string }
	Failed        int
}

// TestComparison runs the tool on all of them. Only the sidecar has to pass: what the others do is written down.
func TestComparison(t *testing.T) {
	bin := t.TempDir()
	const module = "github.com/mcp-sidecar/mcp-sidecar/"
	if err := proc.Build(t.Context(), bin, proc.Sidecar, proc.Testbackend, module+"e2e/bench", module+"e2e/swaptest"); err != nil {
		t.Fatal(err)
	}
	var all []outcome
	proxies := rivals(bin)
	for _, r := range proxies {
		t.Run(r.name, func(t *testing.T) {
			o := compare(t, bin, r)
			if r.name == "mcp-sidecar" && o.Failed > 0 {
				t.Errorf("%d scenarios failed: %+v", o.Failed, o.Results)
			}
			all = append(all, o)
		})
	}
	if len(all) == 0 {
		return
	}
	text := table(all) + reasons(all)
	t.Logf("\n%s", text)
	switch {
	case os.Getenv("UPDATE_DOCS") == "" || t.Failed():
	case len(all) < len(proxies):
		t.Errorf("%s stays as it is: proxies are missing", document)
	default:
		update(t, text)
	}
}

// compare runs the tool on one proxy.
func compare(t *testing.T, bin string, r rival) outcome {
	t.Helper()
	version, path := r.prepare(t)
	o := outcome{name: r.name, version: version, flags: r.flags}
	args := append([]string{"--json", "--testbackend", filepath.Join(bin, "testbackend"), "--parallel", parallel()}, r.flags...)
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "swaptest"), slices.Concat(args, []string{"--"}, r.command)...)
	cmd.Env = append(os.Environ(), "PATH="+path+string(os.PathListSeparator)+os.Getenv("PATH"))
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it ends what it started
	cmd.WaitDelay = 30 * time.Second
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, io.MultiWriter(&progress, t.Output())
	err := cmd.Run()
	if exit, ok := errors.AsType[*exec.ExitError](err); err != nil && (!ok || exit.ExitCode() != 1) {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	if err := json.Unmarshal(out.Bytes(), &o); err != nil {
		t.Fatal(err)
	}
	return o
}

// parallel is how many scenarios run at one time.
func parallel() string {
	if n := os.Getenv("COMPARISON_PARALLEL"); n != "" {
		return n
	}
	return "2"
}

// table has a row for each scenario and a column for each proxy.
func table(all []outcome) string {
	var b strings.Builder
	cells := func(cell func(o outcome) string, first string) {
		fmt.Fprintf(&b, "| %s |", first)
		for _, o := range all {
			fmt.Fprintf(&b, " %s |", cell(o))
		}
		fmt.Fprintln(&b)
	}
	cells(func(o outcome) string { return o.name }, "scenario")
	cells(func(outcome) string { return "---" }, "---")
	for i, s := range all[0].Results {
		cells(func(o outcome) string { return o.Results[i].Result }, "`"+s.Scenario+"`")
	}
	b.WriteString("\nWhat the scenarios ask for:\n\n")
	for _, s := range all[0].Results {
		fmt.Fprintf(&b, "- `%s`: %s\n", s.Scenario, s.Asks)
	}
	return b.String()
}

// reasons says what was run, and why each row isn't passed.
func reasons(all []outcome) string {
	var b strings.Builder
	for _, o := range all {
		fmt.Fprintf(&b, "\n### %s\n\n%s\n\n```\n%s\n```\n", o.name, o.version, shell(slices.Concat([]string{"mcp-sidecar-swaptest"}, o.flags, []string{"--"}, o.Command)))
		notes := slices.DeleteFunc(slices.Clone(o.Results), func(r struct{ Scenario, Asks, Result, Why string }) bool { return r.Why == "" })
		if len(notes) > 0 {
			fmt.Fprintln(&b)
		}
		for _, r := range notes {
			fmt.Fprintf(&b, "- `%s`, %s: %s\n", r.Scenario, r.Result, strings.NewReplacer("<", "&lt;", "[", "(", "]", ")").Replace(r.Why))
		}
	}
	return b.String()
}

// shell writes a command as one types it.
func shell(command []string) string {
	plain := regexp.MustCompile(`^[A-Za-z0-9{}:/.,=_-]+$`)
	words := make([]string, len(command))
	for i, word := range command {
		if words[i] = word; !plain.MatchString(word) {
			words[i] = `"` + word + `"`
		}
	}
	return strings.Join(words, " ")
}

// update writes the generated part of the document.
func update(t *testing.T, text string) {
	t.Helper()
	raw, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(raw), generatedBegin)
	_, after, ok2 := strings.Cut(rest, generatedEnd)
	if !ok || !ok2 {
		t.Fatalf("%s doesn't say where the generated part is", document)
	}
	if err := os.WriteFile(document, []byte(before+generatedBegin+"\n"+text+"\n"+generatedEnd+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
