//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// The commands that TestMain builds.
var sidecarPath, backendPath, benchPath string

func TestMain(m *testing.M) {
	proc.Main(m, func(ctx context.Context, dir string) error {
		const bench = "github.com/mcp-sidecar/mcp-sidecar/e2e/bench" // its command reverse is an httputil.ReverseProxy
		sidecarPath, backendPath, benchPath = filepath.Join(dir, "mcp-sidecar"), filepath.Join(dir, "testbackend"), filepath.Join(dir, "bench")
		return proc.Build(ctx, dir, proc.Sidecar, proc.Testbackend, bench)
	}, func() error { return goleak.Find() })
}

// swaptest runs the tool.
func swaptest(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, progress bytes.Buffer
	code = execute(t.Context(), args, &out, &progress)
	return code, out.String(), progress.String()
}

// results runs the tool on a proxy, and returns what came of each scenario and why.
func results(t *testing.T, want int, flags []string, command ...string) (came, why map[string]string) {
	t.Helper()
	args := []string{
		"--json", "--verbose", "--testbackend", backendPath, "--parallel", "4", "--away", "1s", "--settle", "1s",
	}
	if testing.Short() && !slices.Contains(flags, "--only") {
		args = append(args, "--only", "strict,in-flight")
	}
	code, out, progress := swaptest(t, slices.Concat(args, flags, []string{"--"}, command)...)
	var r report
	if err := json.Unmarshal([]byte(out), &r); err != nil || code != want {
		t.Fatalf("exit code %d, want %d: %v\n%s\n%s", code, want, err, out, progress)
	}
	came, why = map[string]string{}, map[string]string{}
	for _, s := range r.Results {
		came[s.Scenario], why[s.Scenario] = s.Result, s.Why
	}
	if len(r.Results) != r.Passed+r.Failed+r.NotApplicable {
		t.Errorf("the sums are wrong: %s", out)
	}
	return came, why
}

func TestSidecarPasses(t *testing.T) {
	t.Parallel()
	_, why := results(t, exitPassed, []string{"--patience", "1m"}, sidecarPath, "run", "--listen", "{listen}", "--upstream", "http://{backend}/mcp",
		"--ops-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--state", "{dir}/state.db")
	for name, text := range why {
		if text != "" {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// TestReverseProxyFails shows that each scenario can fail.
func TestReverseProxyFails(t *testing.T) {
	t.Parallel()
	came, why := results(t, exitFailed, []string{"--patience", "10s"}, benchPath, "reverse", "{listen}", "http://{backend}")
	want := map[string]string{
		"instant": failed, "strict": failed, "400": failed, "storm": failed, "away": failed, "in-flight": failed,
		"stream": failed, "announced": failed, "unannounced": skipped, "stateless": failed, "stateless-away": failed,
	}
	for name := range want {
		if testing.Short() && came[name] == "" {
			delete(want, name)
		}
	}
	if came["stateless"] == passed {
		want["stateless"] = passed // no call may have come while there was no process
	}
	if diff := cmp.Diff(want, came); diff != "" {
		t.Errorf("(-want +got)\n%s\n%v", diff, why)
	}
	for name, text := range map[string]string{"strict": "6 of 6 calls failed: HTTP 404", "in-flight": "HTTP 502"} {
		if !strings.Contains(why[name], text) {
			t.Errorf("%s: %q, want %q in it", name, why[name], text)
		}
	}
}

// TestClientsRecover shows that a proxy that passes on lost sessions is enough for clients that begin new ones.
func TestClientsRecover(t *testing.T) {
	t.Parallel()
	_, why := results(t, exitPassed, []string{"--recover", "--only", "strict,storm"}, benchPath, "reverse", "{listen}", "http://{backend}")
	if len(why) != 2 || why["strict"]+why["storm"] != "" {
		t.Errorf("%v", why)
	}
}

func TestProxyDoesNotStart(t *testing.T) {
	addr := proc.ReserveAddr(t)
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no command":         {nil, "write it after --"},
		"address not passed": {[]string{"--", "true", "{backend}"}, "--url"},
		"backend not passed": {[]string{"--", "true", "{listen}"}, "--backend"},
		"fixed and parallel": {[]string{"--parallel", "2", "--backend", addr, "--", "true", "{listen}"}, "--parallel"},
		"unknown scenario":   {[]string{"--only", "none", "--", "true"}, "unannounced"},
		"unknown flag":       {[]string{"--none"}, "--help"},
		"not a program":      {[]string{"--", "/no/such/program", "{listen}", "{backend}"}, "no such file"},
		"ends": {
			[]string{"--", "/bin/sh", "-c", "echo reason of {listen} {backend} >&2; exit 3"},
			"its command ended (exit status 3)\nThe last that sh wrote:\n    reason of 127.0.0.1:",
		},
		"never serves": {[]string{"--start", "1s", "--", "/bin/sh", "-c", "exec sleep 60 # {listen} {backend}"}, "within 1s"},
		"no backend":   {[]string{"--testbackend", "/no/such/file", "--", "true", "{listen}", "{backend}"}, "starting the test backend"},
	} {
		t.Run(name, func(t *testing.T) {
			code, _, out := swaptest(t, append([]string{"--testbackend", backendPath}, c.args...)...)
			if code != exitUsage || !strings.Contains(out, c.want) {
				t.Errorf("exit code %d, want %d and %q in:\n%s", code, exitUsage, c.want, out)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	code, out, _ := swaptest(t, "--help")
	if code != exitPassed || !strings.Contains(out, "{backend}") || !strings.Contains(out, "Exit codes") {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	code, out, _ = swaptest(t, "--list")
	if code != exitPassed || strings.Count(out, "\n") != len(scenarios()) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
}

func TestTally(t *testing.T) {
	var calls tally
	calls.add(nil)
	if err := calls.err(); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"b", "a", "c", "b"} {
		calls.add(errors.New(text))
	}
	if got := calls.err().Error(); got != "4 of 5 calls failed: b; a" {
		t.Errorf("it says %q", got)
	}
}
