//go:build openhands && unix

package openhands

import (
	"fmt"
	"maps"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// kind is a way to make an MCP server: an interpreter with packages, and which of them is used.
type kind struct {
	python, use string
}

// backend is an address with one process of an MCP server after the other.
type backend struct {
	t         *testing.T
	kind      kind
	stateless bool
	addr      string
	version   string // of the running process
	p         *proc.Process
}

func newBackend(t *testing.T, k kind, stateless bool) *backend {
	t.Helper()
	return &backend{t: t, kind: k, stateless: stateless, addr: proc.ReserveAddr(t)}
}

func (b *backend) start(version string) {
	b.t.Helper()
	args := []string{"python/backend.py", "--listen", b.addr, "--version", version, "--kind", b.kind.use}
	if b.stateless {
		args = append(args, "--stateless")
	}
	b.p, b.version = proc.Start(b.t, b.kind.python, args...), version
	proc.WaitListening(b.t, b.addr)
}

// replace ends the process, by force or as a deployment does: then it gets a moment to finish, which servers with open
// streams use up. For a while there is none, then one of another version.
func (b *backend) replace(version string, force bool) {
	b.t.Helper()
	if !force {
		b.p.Signal(syscall.SIGTERM)
		select {
		case <-b.p.Done():
		case <-time.After(2 * time.Second):
		}
	}
	b.p.Kill()
	<-time.After(500 * time.Millisecond)
	b.start(version)
}

// The tools of the two versions, with their parameters. One is in both, one has another schema, and one is only in one.
func toolsOf(version string) offer {
	if version == "v1" {
		return offer{"balance": {"account"}, "convert": {"amount"}, "count": {"by"}}
	}
	return offer{"balance": {"account"}, "convert": {"amount", "currency"}, "multiply": {"a", "b"}}
}

// difference tells how an offer differs from what it should be, besides the tool that the agent has by itself. It is empty
// when it doesn't.
func (o offer) difference(want offer) string {
	if _, ok := o["finish"]; !ok {
		return fmt.Sprintf("the agent's own tool isn't there: %v", o)
	}
	for name, parameters := range want {
		got, ok := o[name]
		if !ok {
			return fmt.Sprintf("%s is missing: %v", name, o)
		}
		// The agent server adds parameters of its own.
		got = slices.DeleteFunc(slices.Clone(got), func(p string) bool { return p == "summary" || p == "security_risk" })
		if slices.Sort(got); !slices.Equal(got, parameters) {
			return fmt.Sprintf("%s has the parameters %q, want %q", name, got, parameters)
		}
	}
	if len(o) != len(want)+1 {
		return fmt.Sprintf("%q are offered, want %q", slices.Sorted(maps.Keys(o)), slices.Sorted(maps.Keys(want)))
	}
	return ""
}

// toolName is the name that a tool of a backend has in a conversation. The agent server puts the name of the server
// before it where there are several.
func toolName(backends map[string]*backend, backend, tool string) string {
	if len(backends) == 1 {
		return tool
	}
	return backend + "_" + tool
}

// reading is a call of a tool that only reads, and is the same in both versions.
func reading(tool string) call {
	return call{
		tool:   tool,
		args:   func(n int) string { return fmt.Sprintf(`{"account": "account-%d"}`, n) },
		result: func(n int) string { return fmt.Sprintf("balance of account-%d", n) },
	}
}

// special is a call of a tool that only one version has.
func special(backends map[string]*backend, name string) call {
	if backends[name].version == "v1" {
		return call{
			tool:   toolName(backends, name, "count"),
			args:   func(n int) string { return fmt.Sprintf(`{"by": %d}`, n) },
			result: func(n int) string { return fmt.Sprintf("counted %d", n) },
		}
	}
	return call{
		tool:   toolName(backends, name, "multiply"),
		args:   func(n int) string { return fmt.Sprintf(`{"a": %d, "b": 7}`, n) },
		result: func(n int) string { return fmt.Sprintf("product %d", 7*n) },
	}
}
