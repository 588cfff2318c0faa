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
	// The clients call balance, which stays as it is.
	offer := func(report string) string {
		return `[{"name": "balance", "annotations": {"readOnlyHint": true}}, {"name": "report", ` + report + `}]`
	}
	file := writeFile(t, "tools.json", offer(`"description": "Reports."`))
	b := startBackend(t, "-tools", file)
	a := startAgents(t)
	s := startSidecar(t, b, "--agent-server", a.url())
	talk := a.converse(id(1), s.urlOf(id(1)), nil)
	s.waitCurrent(1)
	a.forget()
	w := startCrowd(t, s.url(), 2)

	const input = `"inputSchema": {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}`
	swaps, changes := 0, 0
	for _, tt := range []struct {
		what, report string
		changed      bool
	}{
		{"the description", `"description": "Reports a day."`, true},
		{"required", `"description": "Reports a day.", ` + input, true},
		{"annotations", `"description": "Reports a day.", "annotations": {"readOnlyHint": true}, ` + input, true},
		{"outputSchema", `"description": "Reports a day.", "annotations": {"readOnlyHint": true}, "outputSchema": {"type": "object"}, ` + input, true},
		{"_meta", `"description": "Reports a day.", "annotations": {"readOnlyHint": true}, "outputSchema": {"type": "object"}, "_meta": {"build": "2"}, ` + input, false},
	} {
		rewrite(t, file, offer(tt.report))
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
		if !tt.changed {
			continue
		}
		for _, tool := range talk.Tools() {
			var got any
			if err := json.Unmarshal(tool.Definition, &got); err != nil || string(mustJSON(t, got)) != tools[tool.Name] {
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
	a.forget()

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
