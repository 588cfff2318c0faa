//go:build unix && alerts

package alerts

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// The commands that TestMain builds.
var sidecarPath, backendPath string

// id is a conversation.
const id = "c0ffee00-0000-4000-8000-000000000001"

func TestMain(m *testing.M) {
	proc.Main(m, func(ctx context.Context, dir string) error {
		sidecarPath, backendPath = filepath.Join(dir, "mcp-sidecar"), filepath.Join(dir, "testbackend")
		return proc.Build(ctx, dir, proc.Sidecar, proc.Testbackend)
	}, nil)
}

// sessionKey writes a key that pods share.
func sessionKey(t *testing.T) string {
	t.Helper()
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	file := filepath.Join(t.TempDir(), "session.key")
	write(t, file, base64.StdEncoding.EncodeToString(key)+"\n")
	return file
}

// Somebody is paged for a conversation that can't be refreshed, and for a backend that is gone, and told when it is over.
func TestPages(t *testing.T) {
	t.Parallel()
	s, agents, p := startStack(t), startAgents(t), newPod(t, "only")
	p.startSidecar(agents.url, sessionKey(t))
	s.scrape(p, true)
	p.startBackend("v1")
	// It doesn't list its tools through the sidecar, so that only the refresh can tell.
	conversation := agents.converse(t, id, "http://"+p.upstream+"/mcp")
	if _, err := p.api.Register(t.Context(), id, admin.Registration{}); err != nil {
		t.Fatal(err)
	}

	agents.refuses.Store(true)
	p.backend.Kill()
	p.startBackend("v2")
	s.await(t, "firing", "McpSidecarConversationsStale")
	s.await(t, "firing", "McpSidecarRefreshFailing")
	agents.refuses.Store(false)
	s.await(t, "resolved", "McpSidecarConversationsStale")
	if !offers(conversation, "v2") {
		t.Errorf("the alert was resolved, and the conversation offers %v", names(conversation))
	}

	p.backend.Kill()
	s.await(t, "firing", "McpSidecarBackendDown")
	p.startBackend("v2")
	s.await(t, "resolved", "McpSidecarBackendDown")
}

// A rollout is silent: the next pod comes, the old one quiesces, loses its backend, and stays for a while before it ends.
func TestRolloutIsSilent(t *testing.T) {
	t.Parallel()
	s, agents := startStack(t), startAgents(t)
	before, after := newPod(t, "before"), newPod(t, "after")
	key := sessionKey(t)
	before.startSidecar(agents.url, key)
	s.scrape(before, true)
	before.startBackend("v1")
	service := startService(t, before)
	conversation := agents.converse(t, id, "http://"+service.addr+"/c/"+id+"/mcp")
	s.watch(t, 3*time.Second)

	after.startSidecar(agents.url, key)
	s.scrape(after, true)
	after.startBackend("v2")
	service.to.Store(after)
	quiesce := proc.Start(t, sidecarPath, "quiesce", "--admin", "http://"+before.admin)
	if code := quiesce.Wait(); code != 0 {
		t.Fatalf("quiesce: exit code %d\n%s", code, quiesce.Output())
	}
	before.backend.Terminate()
	for range 10 { // somebody who didn't notice
		before.call()
	}
	// Longer than it takes to be paged for a backend that is gone.
	s.watch(t, 25*time.Second)
	if code := before.sidecar.Terminate(); code != 0 {
		t.Errorf("the old sidecar ended with exit code %d", code)
	}
	s.scrape(before, false)
	eventually(t, "the conversation to have the new tools", func() bool { return offers(conversation, "v2") })
	s.watch(t, 15*time.Second)

	for _, p := range s.paged() {
		t.Errorf("somebody was paged: %v", p)
	}
	for _, alert := range s.query(t, `count by (alertname, pod) (count_over_time(ALERTS{pod="before"}[10m]))`) {
		t.Errorf("an alert was pending or fired: %v", alert)
	}
	if len(s.query(t, `max_over_time(mcp_sidecar_quiescing{pod="before"}[10m]) == 1`)) != 1 {
		t.Error("Prometheus never saw the old pod quiesce: this test shows nothing")
	}
}

// offers tells whether a conversation offers the tools of a version, going by one that only that version has.
func offers(c *agentserver.Conversation, version string) bool {
	return slices.Contains(names(c), map[string]string{"v1": "count", "v2": "multiply"}[version])
}

func names(c *agentserver.Conversation) []string {
	var all []string
	for _, tool := range c.Tools() {
		all = append(all, tool.Name)
	}
	return all
}
