//go:build unix && replicas

package replicas

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

const conversations = 200

// TestRollouts replaces the backends of three pods one by one, twice, while 200 conversations of three agent servers call tools. A sidecar is
// killed in the middle of each rollout, and Redis is restarted once.
func TestRollouts(t *testing.T) {
	proc.Need(t, "redis-server")
	proc.Need(t, "haproxy")
	servers := []*agents{startAgents(t, "red"), startAgents(t, "green"), startAgents(t, "blue")}
	var flags []string
	for _, a := range servers {
		flags = append(flags, "--agent-server", a.name+"="+a.url)
	}
	f := startFleet(t, 3, flags...)
	var talks []*talk
	for i := range conversations {
		id := fmt.Sprintf("c0ffee00-0000-4000-8000-%012d", i)
		talks = append(talks, servers[i%len(servers)].converse(t, id, f.urlOf(id)))
	}
	f.waitCurrent(conversations, 1)
	old := toolsOf(talks[0].Conversation)
	for _, a := range servers {
		if refreshes, failed := a.take(); len(refreshes) > 0 || failed > 0 {
			t.Errorf("%d conversations were refreshed before anything changed, %d failed", len(refreshes), failed)
		}
	}

	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for _, k := range talks {
		callers.Go(func() { k.run(ctx, time.Second) })
	}
	defer callers.Wait()
	defer stop()

	// The first rollout. Nothing is refreshed while two versions are there.
	f.step("three replicas, and conversations that talk")
	f.pods[0].replace("v2")
	f.step("one of three backends is v2")
	f.pods[1].sidecar.Kill()
	f.pods[1].startSidecar()
	f.pods[1].waitSettled()
	f.pods[1].replace("v2")
	f.step("two of three are, and a sidecar was killed")
	f.wantNone(servers)
	f.redisProcess.Terminate()
	for _, a := range servers {
		a.delay.Store(int64(100 * time.Millisecond))
	}
	f.startRedis()
	f.step("redis was restarted")
	f.pods[2].replace("v2")
	f.step("all are v2")
	f.waitCurrent(conversations, 2)
	f.step("all conversations are refreshed")
	now := toolsOf(talks[0].Conversation)
	if now == old {
		t.Fatalf("the tools are still %s", now)
	}
	f.check(talks, servers, now, 0)

	// The second, back again. One sidecar dies while it refreshes conversations.
	f.pods[0].replace("v1")
	f.pods[1].replace("v1")
	f.wantNone(servers)
	f.pods[2].replace("v1")
	f.step("all are v1 again")
	proc.Eventually(t, "refreshes", func() bool { return servers[0].count()+servers[1].count()+servers[2].count() >= conversations/5 })
	f.pods[2].sidecar.Kill()
	f.pods[2].startSidecar()
	f.step("a sidecar was killed during refreshes")
	f.waitCurrent(conversations, 3)
	f.step("all conversations are refreshed")
	f.check(talks, servers, old, 3*4) // what one sidecar had under way: four for each agent server

	stop()
	callers.Wait()
	calls := int64(0)
	for _, k := range talks {
		calls += k.calls.Load()
		for _, err := range k.errs {
			t.Errorf("a call of %s failed %s", k.ID(), err)
		}
	}
	t.Logf("%d calls", calls)
	for _, p := range f.pods {
		if code := p.sidecar.Terminate(); code != 0 {
			t.Errorf("the sidecar of %s ended with exit code %d", p.name, code)
		}
	}
}

// wantNone checks that nothing is refreshed, for as long as a replica that is gone may count.
func (f *fleet) wantNone(servers []*agents) {
	f.t.Helper()
	within(f.t, 12*time.Second, func() bool { return false })
	for _, a := range servers {
		if n := a.count(); n > 0 {
			f.t.Errorf("%d conversations of %s were refreshed while there were two versions", n, a.name)
		}
	}
}

// check checks that every conversation was refreshed to the tools, once; of those that a killed process had under way, some twice.
func (f *fleet) check(talks []*talk, servers []*agents, tools string, killed int) {
	f.t.Helper()
	done := map[*agents]map[string][]string{}
	for _, a := range servers {
		var failed int
		done[a], failed = a.take()
		if failed > 0 {
			f.t.Logf("%d refreshes at %s failed and were tried again", failed, a.name)
		}
	}
	repeated := 0
	for _, k := range talks {
		if got := toolsOf(k.Conversation); got != tools {
			f.t.Errorf("%s has %q, want %q", k.ID(), got, tools)
		}
		all := done[k.agents][string(k.ID())]
		switch len(all) {
		case 1:
		case 2:
			repeated++
		default:
			f.t.Errorf("%s was refreshed %d times", k.ID(), len(all))
		}
		for _, got := range all {
			if got != tools {
				f.t.Errorf("%s was refreshed to %q, want %q", k.ID(), got, tools)
			}
		}
	}
	if repeated > killed {
		f.t.Errorf("%d conversations were refreshed twice, at most %d may be", repeated, killed)
	}
}
