//go:build sdks && unix

package sdks

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// swaps are the versions of the processes that replace the first, which is v1. The processes are killed and asked to stop
// in turn, so both ends happen with and without a change. The last swap has none: a notice too many would show.
var swaps = []string{"v1", "v2", "v1", "v1", "v1", "v2", "v1", "v1", "v2", "v2"}

// pauses are the times without a backend, in turn.
var pauses = []time.Duration{300 * time.Millisecond, time.Second, 600 * time.Millisecond}

func TestClientsSurviveSwaps(t *testing.T) {
	t.Parallel()
	p := prepare(t)
	stateless := []string{"--stateless"}
	for _, row := range []struct {
		name, server string
		args         []string
		python       []string // clients, besides those that start quickly and are in every row
	}{
		{"mcp-go/stateful", "mcp-go", []string{"-mode", "stateful"}, []string{"fastmcp3", "fastmcp4-newest"}},
		{"mcp-go/stateless", "mcp-go", []string{"-mode", "stateless"}, []string{"fastmcp4-newest"}},
		{"mcp-go/default", "mcp-go", []string{"-mode", "default"}, []string{"fastmcp4"}},
		{"gosdk/stateful", "gosdk", nil, []string{"fastmcp3", "fastmcp4-newest"}},
		{"gosdk/stateless", "gosdk", stateless, []string{"fastmcp3", "fastmcp4"}},
		{"typescript/stateful", "typescript", nil, []string{"fastmcp4"}},
		{"typescript/stateless", "typescript", stateless, []string{"fastmcp3"}},
		{"fastmcp4/stateful", "fastmcp4", nil, []string{"fastmcp4-newest"}},
		{"fastmcp4/stateless", "fastmcp4", stateless, []string{"fastmcp4"}},
		{"fastmcp3/stateful", "fastmcp3", nil, []string{"fastmcp3"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			clients := append([]string{"gosdk", "gosdk-newest", "typescript"}, row.python...)
			testSwaps(t, p, slices.Concat(p.servers[row.server], row.args), clients)
		})
	}
}

// testSwaps replaces the process of one backend under one client of each of the named kinds.
func testSwaps(t *testing.T, p programs, server, names []string) {
	t.Helper()
	backend, sidecar, control := proc.ReserveAddr(t), proc.ReserveAddr(t), proc.ReserveAddr(t)
	start := func(version string) *proc.Process {
		b := proc.Start(t, server[0], slices.Concat(server[1:], []string{"--listen", backend, "--version", version})...)
		proc.WaitListening(t, backend)
		return b
	}
	b := start("v1")
	// On a busy machine the next process may take longer to start than requests are held by default.
	proc.Start(t, p.sidecar, "run", "--upstream", "http://"+backend+"/mcp", "--hold", "55s", "--hold-call", "55s",
		"--listen", sidecar, "--admin-listen", control, "--ops-listen", "127.0.0.1:0",
		"--state", filepath.Join(t.TempDir(), "state.db"))
	proc.WaitListening(t, sidecar)
	api, err := admin.NewClient(control, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	settled := func(swaps, changes int) {
		t.Helper()
		var got admin.Server
		proc.Within(t, patience, fmt.Sprintf("swap %d to settle", swaps), func() bool {
			all, err := api.Servers(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatalf("servers: %+v, %v", all, err)
			}
			got = all[0]
			return got.State == "settled" && int(got.Swaps) >= swaps
		})
		if int(got.Swaps) != swaps || int(got.Generation) != changes+1 {
			t.Errorf("%d swaps were seen and it is generation %d, want %d and %d", got.Swaps, got.Generation, swaps, changes+1)
		}
	}
	settled(0, 0)

	var clients []*client
	for _, name := range names {
		clients = append(clients, startClient(t, name, p.clients[name], "http://"+sidecar+"/mcp"))
	}
	for _, c := range clients {
		c.waitCalls()
	}

	before, changes := "v1", 0
	for i, version := range swaps {
		if i%2 == 0 {
			b.Kill()
		} else {
			b.Terminate()
		}
		<-time.After(pauses[i%len(pauses)])
		b = start(version)
		if version != before {
			changes++
		}
		before = version
		settled(i+1, changes)
		for _, c := range clients {
			c.waitFor("the tools of "+version, func() bool { return c.told >= changes && c.offers(version) })
			c.waitCalls()
			if c.told != changes {
				t.Errorf("after swap %d %s was told %d times that the tools changed, want %d", i+1, c.name, c.told, changes)
			}
		}
	}
	for _, c := range clients {
		c.stop()
		if c.told != changes || !c.offers(before) {
			t.Errorf("%s was told %d times that the tools changed, want %d, and offers %q", c.name, c.told, changes, c.tools)
		}
		t.Logf("%-16s %s: %d calls, told %d times", c.name, c.protocol, c.calls, c.told)
	}
}
