//go:build unix && replicas

package replicas

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestRedisAway replaces all backends while Redis is away, and lets it lose its data later. Traffic notices neither.
func TestRedisAway(t *testing.T) {
	proc.Need(t, "redis-server")
	proc.Need(t, "haproxy")
	const n = 20
	a := startAgents(t, "red")
	f := startFleet(t, 2, "--agent-server", a.name+"="+a.url)
	var talks []*talk
	for i := range n {
		id := fmt.Sprintf("c0ffee00-0000-4000-8000-%012d", i)
		talks = append(talks, a.converse(t, id, f.urlOf(id)))
	}
	f.waitCurrent(n, 1)
	old := toolsOf(talks[0].Conversation)
	ctx, stop := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	for _, k := range talks {
		callers.Go(func() { k.run(ctx, 200*time.Millisecond) })
	}
	defer callers.Wait()
	defer stop()

	f.redisProcess.Kill()
	for _, p := range f.pods {
		proc.Eventually(t, p.name+" to say that the store is away", func() bool { return strings.Contains(p.metrics(), "mcp_sidecar_store_up 0") })
		if !p.ready() {
			t.Errorf("%s isn't ready", p.name)
		}
	}
	late := a.converse(t, "c0ffee00-0000-4000-8000-00000000beef", f.urlOf("c0ffee00-0000-4000-8000-00000000beef"))
	for _, p := range f.pods {
		p.replace("v2")
	}
	if _, err := late.CallTool(t.Context(), "balance", nil); err != nil {
		t.Errorf("a conversation that began without Redis: %v", err)
	}
	if n := a.count(); n > 0 {
		t.Errorf("%d conversations were refreshed while nobody could tell whether the replicas agree", n)
	}
	f.startRedis()
	f.waitCurrent(n+1, 2)
	now := toolsOf(talks[0].Conversation)
	if now == old {
		t.Errorf("the tools are still %s", now)
	}
	f.check(talks, []*agents{a}, now, 0)

	c := redis.NewClient(&redis.Options{Addr: f.redis, Protocol: 2})
	defer c.Close()
	if err := c.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	proc.Within(t, 2*proc.Patience, "all to be refreshed once more", func() bool { return a.count() >= n })
	f.waitCurrent(n+1, 2)
	f.check(talks, []*agents{a}, now, 0)

	stop()
	callers.Wait()
	for _, k := range talks {
		for _, err := range k.errs {
			t.Errorf("a call of %s failed %s", k.ID(), err)
		}
	}
}

func (p *pod) metrics() string {
	p.t.Helper()
	resp, err := http.Get("http://" + p.ops + "/metrics")
	if err != nil {
		p.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(body)
}
