//go:build unix

package e2e

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestChangedDefinitions changes one thing of one tool at a time: every change
// that has a meaning is told once to clients and conversations.
func TestChangedDefinitions(t *testing.T) {
	long(t)
	t.Parallel()
	file := writeFile(t, "tools.json", `[{"name": "balance", "description": "Reads."}]`)
	b := startBackend(t, "-tools", file)
	a := startAgents(t)
	s := startSidecar(t, b, "--agent-server", a.url())
	talk := a.converse(id(1), s.urlOf(id(1)), nil)
	s.waitCurrent(1)
	w := startCrowd(t, s.url(), 2)

	swaps, changes := 0, 0
	for _, tt := range []struct {
		what, tools string
		changed     bool
	}{
		{"the description", `[{"name": "balance", "description": "Reads a balance."}]`, true},
		{"required", `[{"name": "balance", "description": "Reads a balance.",
			"inputSchema": {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}}]`, true},
		{"annotations", `[{"name": "balance", "description": "Reads a balance.", "annotations": {"readOnlyHint": true},
			"inputSchema": {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}}]`, true},
		{"outputSchema", `[{"name": "balance", "description": "Reads a balance.", "annotations": {"readOnlyHint": true},
			"outputSchema": {"type": "object"},
			"inputSchema": {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}}]`, true},
		{"_meta", `[{"name": "balance", "description": "Reads a balance.", "annotations": {"readOnlyHint": true},
			"outputSchema": {"type": "object"}, "_meta": {"build": "2"},
			"inputSchema": {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}}]`, false},
	} {
		rewrite(t, file, tt.tools)
		b.terminate()
		b.start("v1")
		swaps++
		if tt.changed {
			changes++
		}
		s.waitSwap(uint64(swaps), uint64(changes+1))
		tools := b.tools()
		if tt.changed {
			w.waitTools(tools)
		}
		w.waitCalls()
		s.waitCurrent(1)
		w.told(int64(changes))
		if n := a.refreshed(id(1)); n != changes {
			t.Errorf("after a change of %s there were %d refreshes, want %d", tt.what, n, changes)
		}
		if tt.changed {
			var got any
			if err := json.Unmarshal(talk.Tools()[0].Definition, &got); err != nil || string(mustJSON(t, got)) != tools["balance"] {
				t.Errorf("after a change of %s the conversation has %v, %v", tt.what, got, err)
			}
		}
	}
}

// TestOverlappingSwaps replaces the tools again and again while refreshes take
// their time: a conversation is never refreshed twice at once, and ends up with
// the newest tools.
func TestOverlappingSwaps(t *testing.T) {
	long(t)
	t.Parallel()
	b := startBackend(t)
	a := startAgents(t)
	s := startSidecar(t, b, "--agent-server", a.url())
	talk := a.converse(id(1), s.urlOf(id(1)), nil)
	s.waitCurrent(1)

	running := make(chan struct{}, 1)
	a.intercept(func(http.ResponseWriter, *http.Request, string) bool {
		select {
		case running <- struct{}{}:
		default:
			t.Error("two refreshes of one conversation run at once")
		}
		wait(1500 * time.Millisecond)
		<-running
		return false
	})
	for _, version := range []string{"v2", "v1", "v2"} {
		b.kill()
		b.start(version)
		proc.Eventually(t, "the backend to answer", func() bool { return s.server().State != "away" })
		wait(500 * time.Millisecond)
	}
	proc.Eventually(t, "the newest tools to be settled", func() bool {
		got := s.server()
		return got.State == "settled" && got.Generation > 1
	})
	s.waitCurrent(1)
	tools := b.tools()
	proc.Eventually(t, "the conversation to offer the newest tools", func() bool { return offers(talk, tools) })
	if n := a.refreshed(id(1)); n < 1 || n > 2 {
		t.Errorf("there were %d refreshes, want one, and one more where the first was overtaken: %v", n, a.asked(id(1)))
	}
}
