//go:build unix

package e2e

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// backend is an address with one process of the test backend after the other.
type backend struct {
	t       *testing.T
	addr    string
	journal string
	args    []string // of every process
	p       *proc.Process
}

// startBackend starts the first process, with version v1.
func startBackend(t *testing.T, args ...string) *backend {
	t.Helper()
	b := newBackend(t, args...)
	b.start("v1")
	return b
}

// newBackend reserves an address on which nothing listens yet.
func newBackend(t *testing.T, args ...string) *backend {
	t.Helper()
	return &backend{t: t, addr: proc.ReserveAddr(t), journal: filepath.Join(t.TempDir(), "journal"), args: args}
}

func (b *backend) url() string { return "http://" + b.addr + "/mcp" }

// launch starts a process and doesn't wait for it.
func (b *backend) launch(version string, args ...string) {
	b.t.Helper()
	all := slices.Concat([]string{"-listen", b.addr, "-journal", b.journal, "-version", version}, b.args, args)
	b.p = proc.Start(b.t, backendPath, all...)
}

// start starts a process and waits until it listens.
func (b *backend) start(version string, args ...string) {
	b.t.Helper()
	b.launch(version, args...)
	b.p.Addr()
}

// kill ends the process as SIGKILL does.
func (b *backend) kill() { b.p.Kill() }

// terminate asks the process to end, and waits until it has.
func (b *backend) terminate() {
	b.t.Helper()
	if code := b.p.Terminate(); code != 0 {
		b.t.Errorf("the backend ended with exit code %d", code)
	}
}

// admin asks the running process for something, such as list_changed?n=3.
func (b *backend) admin(what string) {
	b.t.Helper()
	if status, body := fetch(b.t, "POST", "http://"+b.addr+"/admin/"+what, nil); status != 200 {
		b.t.Errorf("POST /admin/%s: %d %s", what, status, body)
	}
}

// tools returns what the running process offers to a client of its own.
func (b *backend) tools() toolset {
	b.t.Helper()
	c := connect(b.t, b.url())
	defer c.end()
	return c.tools()
}

// entries returns what a process wrote into the journal, 0 for all of them.
func (b *backend) entries(pid int) []journal.Entry {
	b.t.Helper()
	all, err := journal.Read(b.journal)
	if err != nil {
		b.t.Fatal(err)
	}
	return slices.DeleteFunc(all, func(e journal.Entry) bool { return pid != 0 && e.PID != pid })
}

// ran returns how often a tool was begun, by all processes.
func (b *backend) ran(tool string) int {
	b.t.Helper()
	n := 0
	for _, e := range b.entries(0) {
		if e.Event == "tools/call" && e.Tool == tool && e.Phase == journal.Begin {
			n++
		}
	}
	return n
}

func mustJSON(t *testing.T, v any) []byte {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}
