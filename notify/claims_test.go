package notify

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// fakeClaims is what another replica has a claim on.
type fakeClaims struct {
	mu      sync.Mutex
	theirs  map[conversation.ID]bool
	ours    map[conversation.ID]bool
	asked   int
	claimed func(conversation.ID) // runs in a Claim that succeeds
}

func (c *fakeClaims) Claim(_ context.Context, id conversation.ID) bool {
	c.mu.Lock()
	c.asked++
	if c.theirs[id] {
		c.mu.Unlock()

		return false
	}
	c.ours[id] = true
	claimed := c.claimed
	c.mu.Unlock()
	if claimed != nil {
		claimed(id)
	}

	return true
}

func (c *fakeClaims) Unclaim(_ context.Context, id conversation.ID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.ours, id)
}

func (c *fakeClaims) take(id conversation.ID, theirs bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.theirs[id] = theirs
}

func (c *fakeClaims) held() int {
	c.mu.Lock()
	defer c.mu.Unlock()

	return len(c.ours)
}

func newClaims() *fakeClaims {
	return &fakeClaims{theirs: map[conversation.ID]bool{}, ours: map[conversation.ID]bool{}}
}

// TestClaimedElsewhere: a conversation that another replica refreshes is left alone, and looked after when that one doesn't.
func TestClaimedElsewhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, "a")
		claims := newClaims()
		h.deps.Claims = claims
		ids := h.add("a", 3)
		claims.take(ids[0], true)
		h.settle("default")
		defer h.run()()
		after(10 * time.Second)
		if n := h.clients["a"].count(); n != 2 {
			t.Errorf("%d calls, want those for the other two", n)
		}
		if claims.asked < 5 || claims.asked > 50 {
			t.Errorf("the claim was tried %d times in ten seconds", claims.asked-2)
		}
		if n := claims.held(); n != 0 {
			t.Errorf("%d claims were not given back", n)
		}
		claims.take(ids[0], false)
		after(2 * time.Second)
		if n := h.clients["a"].count(); n != 3 || h.states(ids)[conversation.StateCurrent] != 3 {
			t.Errorf("%d calls, %v", n, h.states(ids))
		}
	})
}

// TestDealtWithElsewhere: what another replica recorded before the claim succeeded counts.
func TestDealtWithElsewhere(t *testing.T) {
	t.Parallel()
	for name, record := range map[string]func(*conversation.Conversation, conversation.View){
		"refreshed": func(c *conversation.Conversation, v conversation.View) {
			s := v.Servers["default"]
			c.Refreshed(v, map[string]conversation.Applied{"default": {Generation: s.Desired, How: conversation.HowAcknowledged, At: time.Now()}})
		},
		"failed": func(c *conversation.Conversation, v conversation.View) {
			c.RefreshFailed(v, conversation.ConditionFailed, conversation.Failure{Reason: "network", At: time.Now()}, time.Now().Add(time.Minute))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				h := newHarness(t, "a")
				claims := newClaims()
				once := sync.OnceFunc(func() {
					if _, err := h.registry.Update(t.Context(), "a-1", func(c *conversation.Conversation) error {
						record(c, h.get("a-1"))

						return nil
					}); err != nil {
						t.Error(err)
					}
				})
				claims.claimed = func(conversation.ID) { once() }
				h.deps.Claims = claims
				h.add("a", 1)
				h.settle("default")
				defer h.run()()
				after(30 * time.Second)
				if n := h.clients["a"].count(); n != 0 {
					t.Errorf("%d calls although another replica had dealt with it", n)
				}
				after(time.Minute)
				if want := map[string]int{"refreshed": 0, "failed": 1}[name]; h.clients["a"].count() != want {
					t.Errorf("%d calls after a while, want %d", h.clients["a"].count(), want)
				}
			})
		})
	}
}
