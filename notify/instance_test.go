package notify

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const sandboxA, sandboxB = "https://a.example.com", "https://b.example.com"

// newSandboxes returns a harness in which "a" is a pattern, with the agent
// servers sandboxA and sandboxB behind it.
func newSandboxes(t *testing.T) (h *harness, a, b *fakeClient) {
	t.Helper()
	h = newHarness(t, "a")
	h.servers = nil
	settings := map[string]conversation.AgentServerSettings{"a": {IdleAfter: time.Hour, Pattern: true}}
	rc := conversation.DefaultRegistryConfig()
	rc.Servers, rc.AgentServers = []string{"default", "other"}, settings
	if err := h.registry.SetConfig(rc); err != nil {
		t.Fatal(err)
	}
	for _, u := range []string{sandboxA, sandboxB} {
		name := conversation.Instance{AgentServer: "a", URL: u}.Name()
		s := DefaultAgentServer(name, mustURL(t, u))
		s.Label = "a"
		h.servers = append(h.servers, s)
		h.clients[name] = &fakeClient{t: t, answer: ok, running: map[conversation.ID]bool{}}
	}

	return h, h.clients["a "+sandboxA], h.clients["a "+sandboxB]
}

func (h *harness) addAt(url string, ids ...conversation.ID) {
	h.t.Helper()
	for _, id := range ids {
		if _, _, err := h.registry.Register(h.t.Context(), conversation.Registration{
			ID: id, AgentServer: "a", AgentURL: url, Servers: []string{"default"}, Source: conversation.SourceAdmin,
		}); err != nil {
			h.t.Fatal(err)
		}
	}
}

func TestSandboxes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, a, b := newSandboxes(t)
		h.addAt(sandboxA, "1", "2")
		h.addAt(sandboxB, "3")
		h.settle("default")
		defer h.run()()
		after(time.Second)
		if a.count() != 2 || b.count() != 1 || h.result(ResultSuccess) != 3 {
			t.Errorf("%d and %d calls, %v successes under the label", a.count(), b.count(), h.result(ResultSuccess))
		}
		h.r.DropAgentServer("a " + sandboxB)
		h.r.DropAgentServer("a " + sandboxB)
		h.settle("default")
		after(time.Minute)
		if a.count() != 4 || b.count() != 1 || !b.closed {
			t.Errorf("%d and %d calls after one is dropped, closed %v", a.count(), b.count(), b.closed)
		}
		if err := h.r.PutAgentServer(h.servers[1]); err != nil {
			t.Fatal(err)
		}
		after(time.Second)
		if b.count() != 2 {
			t.Errorf("%d calls after it is back", b.count())
		}
	})
}

// TestConversationMoves has a conversation move to another sandbox before, or
// during, its refresh at the old one.
func TestConversationMoves(t *testing.T) {
	for name, answer := range map[string]refreshFunc{
		"success": ok, "failure": failing(ReasonNetwork, 0), "gone": failing(ReasonGone, 404),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, a, b := newSandboxes(t)
				h.servers[0].Concurrency = 1
				moved := make(chan struct{})
				a.set(func(ctx context.Context, c call) error {
					<-moved
					if err := c.gate(); ReasonOf(err) != ReasonSuperseded {
						t.Errorf("the gate says %v", err)
					}

					return answer(ctx, c)
				})
				h.addAt(sandboxA, "1", "2")
				h.settle("default")
				defer h.run()()
				synctest.Wait()
				h.addAt(sandboxB, "1", "2") // one of them runs, the other waits
				close(moved)
				after(time.Second)
				if a.count() != 1 || b.count() != 2 {
					t.Errorf("%d calls of the old one, %d of the new one", a.count(), b.count())
				}
				want := map[conversation.State]int{conversation.StateCurrent: 2}
				if diff := cmp.Diff(want, h.states([]conversation.ID{"1", "2"})); diff != "" {
					t.Error(diff)
				}
				if v := h.get("1"); v.Attempts != 0 {
					t.Errorf("the failure at the old one counts: %+v", v.LastError)
				}
			})
		})
	}
}
