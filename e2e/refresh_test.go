//go:build unix

package e2e

import (
	"net/http"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// fleet is a backend, an agent server with conversations that are registered by
// hand, and a sidecar. Which listings are theirs isn't seen, so that only the
// answers of the agent server tell whether a refresh was done.
type fleet struct {
	*sidecar
	b *backend
	a *agents
}

func startFleet(t *testing.T, conversations int, args ...string) fleet {
	t.Helper()
	b := startBackend(t)
	a := startAgents(t)
	f := fleet{startSidecar(t, b, append([]string{"--agent-server", a.url()}, args...)...), b, a}
	for n := range conversations {
		a.converse(id(n), f.url(), nil)
		f.register(id(n))
	}
	f.waitCurrent(conversations)
	a.forget()
	return f
}

// swap replaces the backend's process by one with other tools, and waits until
// these are settled.
func (f fleet) swap() {
	f.t.Helper()
	f.b.kill()
	f.b.start("v2")
	f.waitSettled(2)
}

// TestAgentServerAway swaps the backend while the agent server can't be reached.
func TestAgentServerAway(t *testing.T) {
	long(t)
	t.Parallel()
	f := startFleet(t, 3)
	f.a.down()
	f.swap()
	var c admin.Conversation
	proc.Eventually(t, "failed attempts", func() bool {
		c = f.conversations()[id(0)]
		return c.LastError != nil
	})
	if c.LastError.Reason != "network" || c.State != "failed" {
		t.Errorf("the conversation is %s, because of %+v", c.State, c.LastError)
	}
	f.a.up()
	f.waitCurrent(3)
	for n := range 3 {
		if got := f.a.asked(id(n)); len(got) != 1 {
			t.Errorf("the agent server was asked %v, want once", got)
		}
	}
}

// TestAgentServerKey gives the sidecar a wrong key first.
func TestAgentServerKey(t *testing.T) {
	long(t)
	t.Parallel()
	key := writeFile(t, "key", "wrong\n")
	f := startFleet(t, 1, "--agent-api-key-file", key)
	f.a.want("right")
	f.swap()
	proc.Eventually(t, "a refused attempt", func() bool {
		c := f.conversations()[id(0)]
		return c.LastError != nil && c.LastError.Reason == "auth"
	})
	rewrite(t, key, "right\n")
	f.waitCurrent(1)
	got := f.a.asked(id(0))
	if len(got) > 6 || got[0] != http.StatusUnauthorized || f.a.refreshed(id(0)) != 1 {
		t.Errorf("the agent server answered %v", got)
	}
}

// TestConversationGone deletes one conversation of three at the agent server.
func TestConversationGone(t *testing.T) {
	long(t)
	t.Parallel()
	f := startFleet(t, 3)
	if err := f.a.server.Delete("c0ffee00-0000-4000-8000-000000000001"); err != nil {
		t.Fatal(err)
	}
	f.swap()
	f.waitCurrent(2)
	if _, there := f.conversations()[id(1)]; there {
		t.Error("the conversation that is gone is registered still")
	}
	if got := f.a.asked(id(1)); len(got) != 1 || got[0] != http.StatusNotFound {
		t.Errorf("it was refreshed with %v", got)
	}
	if n := f.metric(`refreshes_total{agent_server="default",result="gone"}`); n != 1 {
		t.Errorf("%v conversations are counted as gone", n)
	}
}

// TestRefreshConflict has the agent server answer 409 to begin with.
func TestRefreshConflict(t *testing.T) {
	long(t)
	t.Parallel()
	f := startFleet(t, 1)
	refuse := make(chan struct{}, 2)
	refuse <- struct{}{}
	refuse <- struct{}{}
	f.a.intercept(func(w http.ResponseWriter, _ *http.Request, _ string) bool {
		select {
		case <-refuse:
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusConflict)
			_, _ = w.Write([]byte(`{"detail":"Conversation is busy"}`))
			return true
		default:
			return false
		}
	})
	f.swap()
	proc.Eventually(t, "the conflict to be noted", func() bool {
		c := f.conversations()[id(0)]
		return c.LastError != nil && c.LastError.Reason == "conflict" || c.State == "current"
	})
	f.waitCurrent(1)
	if got := f.a.asked(id(0)); len(got) != 3 || got[2] != http.StatusOK {
		t.Errorf("the agent server answered %v", got)
	}
}

// TestSlowAgentServer has two agent servers, of which one takes its time and
// doesn't delay the other.
func TestSlowAgentServer(t *testing.T) {
	long(t)
	t.Parallel()
	b := startBackend(t)
	slow, quick := startAgents(t), startAgents(t)
	s := startSidecar(t, b, "--agent-server", "slow="+slow.url(), "--agent-server", "quick="+quick.url())
	const many = 8 // more than are refreshed at once
	for n := range many {
		slow.converse(id(n), s.urlOf(id(n)), map[string]string{"X-Sidecar-Agent-Server": "slow"})
	}
	quick.converse(id(many), s.urlOf(id(many)), map[string]string{"X-Sidecar-Agent-Server": "quick"})
	s.waitCurrent(many + 1)
	slow.forget() // conversations that were found before they listed their tools were refreshed

	answer := make(chan struct{})
	slow.intercept(func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		select {
		case <-answer:
		case <-r.Context().Done():
		}
		return false
	})
	b.kill()
	b.start("v2")
	s.waitSettled(2)
	s.waitState(id(many), "current")
	if n := s.metric(`conversations{agent_server="slow",state="stale"}`); n != many {
		t.Errorf("%v conversations of the slow agent server are stale, want %d", n, many)
	}
	wait(time.Second)
	close(answer)
	s.waitCurrent(many + 1)
	for n := range many {
		if got := slow.asked(id(n)); len(got) != 1 {
			t.Errorf("conversation %d was refreshed with %v", n, got)
		}
	}
}
