//go:build unix

package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestStartUpPhases swaps to a process that is closed, unavailable and without
// tools before it is complete. What it offers is published once, and whole.
func TestStartUpPhases(t *testing.T) {
	long(t)
	t.Parallel()
	for _, status := range []string{"503", "404"} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			b := startBackend(t)
			a := startAgents(t)
			s := startSidecar(t, b, "--agent-server", a.url())
			talks := map[string]*agentserver.Conversation{
				id(1): a.converse(id(1), s.urlOf(id(1)), nil),
				id(2): a.converse(id(2), s.url(), nil),
			}
			s.register(id(2))
			s.waitCurrent(2)
			a.forget()
			before := b.tools()
			var listeners []*client
			for range 3 {
				c := connect(t, s.url())
				c.stream()
				listeners = append(listeners, c)
			}
			lister := connect(t, s.url())

			b.kill()
			b.launch("v2", "-closed", "1s", "-unavailable", "1s", "-unavailable-status", status, "-empty", "1s")
			var lists []toolset // that were delivered until the complete one was
			proc.Eventually(t, "the complete list to be delivered", func() bool {
				tools := lister.tools()
				lists = append(lists, tools)
				for name := range tools {
					if name == "multiply" {
						return true
					}
				}
				return false
			})
			tools := b.tools()
			for _, got := range lists {
				if !equal(got, before) && !equal(got, tools) {
					t.Errorf("a list of %d tools was delivered", len(got))
				}
			}
			s.waitSwap(1, 2)
			for i, c := range listeners {
				proc.Eventually(t, "the client to be told", func() bool { return c.told.Load() > 0 })
				if !equal(c.tools(), tools) {
					t.Errorf("client %d was told of the new tools and doesn't get them", i)
				}
			}
			s.waitCurrent(2)
			for id, talk := range talks {
				proc.Eventually(t, "the conversation to offer the new tools", func() bool { return offers(talk, tools) })
				if got := a.asked(id); len(got) != 1 {
					t.Errorf("conversation %s was refreshed with %v, want once", id, got)
				}
			}
			for i, c := range listeners {
				if n := c.told.Load(); n != 1 {
					t.Errorf("client %d was told %d times", i, n)
				}
			}
			if got := handshakes(t, b.entries(b.p.PID())); got != 5 { // theirs, the lister's, and the one of b.tools
				t.Errorf("there were %d sessions", got)
			}
		})
	}
}

// TestNoToolsAtAll swaps to a process that really has none: that is adopted, after
// the wait that is configured.
func TestNoToolsAtAll(t *testing.T) {
	long(t)
	t.Parallel()
	b := startBackend(t)
	s := newSidecar(t, config(t, "servers:", "  - name: default", "    path: /mcp", "    upstream: "+b.url(), "    emptyGrace: 1s")...)
	s.start()
	s.waitSettled(1)
	c := connect(t, s.url())
	c.stream()
	b.kill()
	b.start("v1", "-tools", writeFile(t, "tools.json", `[]`))
	s.waitSwap(1, 2)
	if tools := c.tools(); len(tools) != 0 {
		t.Errorf("the tools are %v", tools)
	}
	proc.Eventually(t, "the client to be told", func() bool { return c.told.Load() == 1 })
}

// lists returns how many listings the sidecar's own sessions and those of the
// tests have begun.
func (b *backend) lists() (sidecar, ours int) {
	b.t.Helper()
	mine := map[string]bool{}
	for _, e := range b.entries(0) {
		switch {
		case e.Event == "initialize" && strings.Contains(string(mustJSON(b.t, e.Params)), `"e2e"`):
			mine[e.Session] = true
		case e.Event != "tools/list":
		case mine[e.Session]:
			ours++
		default:
			sidecar++
		}
	}
	return sidecar, ours
}

// TestNoticeStorm has the backend say two hundred times that its tools changed,
// and change them at the end.
func TestNoticeStorm(t *testing.T) {
	long(t)
	t.Parallel()
	b := startBackend(t)
	s := startSidecar(t, b)
	w := startCrowd(t, s.url(), 10)
	w.waitCalls()
	before, _ := b.lists()

	b.admin("list_changed?n=200")
	b.admin("tools?version=v2")
	s.waitSettled(2)
	w.waitTools(b.tools())
	wait(2 * time.Second) // for what might come still
	w.stop()
	w.check()
	for i, c := range w.clients {
		if n := c.told.Load(); n < 1 || n > 3 {
			t.Errorf("client %d was told %d times", i, n)
		}
	}
	if after, _ := b.lists(); after-before > 4 {
		t.Errorf("the sidecar listed the tools %d times", after-before)
	}
}

// TestNoticeOnEveryList has the backend tell all clients at every listing that its
// tools changed, and clients that list whenever they are told: the circle dies out.
func TestNoticeOnEveryList(t *testing.T) {
	long(t)
	t.Parallel()
	const many = 5
	b := startBackend(t, "-notify-on-list")
	s := startSidecar(t, b)
	w := startCrowd(t, s.url(), many)
	wait(4 * time.Second) // for some rounds
	own, ours := b.lists()
	wait(4 * time.Second)
	ownAfter, oursAfter := b.lists()
	if ownAfter > own+1 || oursAfter > ours+2*many { // without an end there would be seven rounds
		t.Errorf("it goes on: the sidecar listed the tools %d times more, its clients %d times", ownAfter-own, oursAfter-ours)
	}
	w.stop()
	w.check()
}
