//go:build unix

package e2e

import (
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// step is one replacement of the backend's process.
type step struct {
	version string        // of the new process
	away    time.Duration // between the two
	changed bool          // whether it offers other tools
}

// TestSwap replaces the backend again and again under ten clients and three
// conversations, in each way that a process ends and a server keeps sessions.
func TestSwap(t *testing.T) {
	t.Parallel()
	steps := []step{
		{"v1b", time.Second, false}, // the same tools, written otherwise
		{"v2", time.Second, true},   //
		{"v2", 5 * time.Second, false},
		{"v1", 5 * time.Second, true}, // back again
	}
	if testing.Short() {
		steps = steps[:2]
	}
	for _, mode := range []string{"stateful", "stateless", "default"} {
		for _, how := range []string{"kill", "stop"} {
			t.Run(mode+"/"+how, func(t *testing.T) {
				t.Parallel()
				if mode != "stateful" || how != "kill" {
					long(t)
				}
				testSwap(t, mode, how, steps)
			})
		}
	}
}

func testSwap(t *testing.T, mode, how string, steps []step) {
	t.Helper()
	b := startBackend(t, "-mode", mode)
	a := startAgents(t)
	s := startSidecar(t, b, "--agent-server", a.url())

	// Registered by the URL of its traffic, by a header of it, and by hand.
	conversations := map[string]*agentserver.Conversation{
		id(1): a.converse(id(1), s.urlOf(id(1)), nil),
		id(2): a.converse(id(2), s.url(), map[string]string{"X-OpenHands-ServerConversation-ID": id(2)}),
		id(3): a.converse(id(3), s.url(), nil),
	}
	s.register(id(3))
	s.waitCurrent(3)
	before := map[string]int{}
	for id := range conversations {
		before[id] = a.refreshed(id)
	}
	w := startCrowd(t, s.url(), 10)
	w.waitCalls()

	tools, changes := b.tools(), 0
	for i, step := range steps {
		if how == "kill" {
			b.kill()
		} else {
			b.terminate()
		}
		wait(step.away)
		b.start(step.version)
		if step.changed {
			changes++
			tools = b.tools()
		}
		s.waitSwap(uint64(i+1), uint64(changes+1))
		w.waitTools(tools)
		w.waitCalls()
		s.waitCurrent(3)
		w.told(int64(changes))
		for id, c := range conversations {
			if got := a.refreshed(id) - before[id]; got != changes {
				t.Errorf("after swap %d to %s conversation %s was refreshed %d times, want %d: %v", i+1, step.version, id, got, changes, a.asked(id))
			}
			proc.Eventually(t, "the conversation to offer the tools of the backend", func() bool { return offers(c, tools) })
		}
	}
	w.stop()
	w.check()
	w.told(int64(changes))
	for id := range conversations {
		if got := a.refreshed(id) - before[id]; got != changes {
			t.Errorf("conversation %s was refreshed %d times, want %d: %v", id, got, changes, a.asked(id))
		}
	}
	t.Logf("%d calls", w.calls.Load())
}

// wait lets time pass that is part of what is tested.
func wait(d time.Duration) { <-time.After(d) }
