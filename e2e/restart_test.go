//go:build unix

package e2e

import (
	"context"
	"net/http"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestKilledInARound kills the sidecar when it has refreshed half of the
// conversations. The next process with the same state does the other half.
func TestKilledInARound(t *testing.T) {
	t.Parallel()
	const many = 6 // half of them don't take all the places for refreshes
	f := startFleet(t, many)
	var blocking atomic.Bool
	blocking.Store(true)
	stopped := make(chan struct{})
	half := map[string]bool{}
	for n := range many / 2 {
		half[id(n)] = true
	}
	f.a.intercept(func(w http.ResponseWriter, r *http.Request, id string) bool {
		if !half[id] || !blocking.Load() {
			return false
		}
		select {
		case <-r.Context().Done():
		case <-stopped:
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	f.swap()
	proc.Eventually(t, "half of the conversations to be current", func() bool {
		current := 0
		for _, c := range f.conversations() {
			if c.State == "current" {
				current++
			}
		}
		return current == many/2
	})
	f.p.Kill()
	blocking.Store(false)
	close(stopped)

	f.start()
	f.waitSettled(2)
	f.waitCurrent(many)
	for n := range many {
		if got := f.a.refreshed(id(n)); got != 1 {
			t.Errorf("conversation %d (held up: %v) was refreshed %d times: %v", n, half[id(n)], got, f.a.asked(id(n)))
		}
	}
}

// TestSuccessorRefreshes lets a conversation whose client doesn't listen go on at
// a sidecar that knows nothing of it: it is registered, and refreshed.
func TestSuccessorRefreshes(t *testing.T) {
	long(t) // a conversation is given 5 s to list its tools by itself
	t.Parallel()
	key := sessionKey(t)
	a := startAgents(t)
	b := startBackend(t)
	s := startSidecar(t, b, "--agent-server", a.url(), "--session-key-file", key)
	c := connect(t, s.urlOf(id(1)))
	c.tools()
	s.waitCurrent(1)
	a.intercept(func(_ http.ResponseWriter, r *http.Request, _ string) bool {
		if _, err := c.list(context.WithoutCancel(r.Context())); err != nil {
			t.Errorf("listing in the refresh: %v", err)
		}
		return true // 200: the client is the conversation
	})
	s.p.Kill()
	b.kill()

	s.state = filepath.Join(t.TempDir(), "state.db")
	b.launch("v2")
	s.start()
	if _, err := c.call(t.Context(), "balance", map[string]string{"account": "1"}); err != nil {
		t.Errorf("a call on the old session: %v", err)
	}
	s.waitSettled(1)
	s.waitCurrent(1)
	if got := a.asked(id(1)); len(got) != 1 {
		t.Errorf("the conversation was refreshed with %v, want once", got)
	}
	if how := s.conversations()[id(1)].Servers[0].How; how != "observed" {
		t.Errorf("the new tools are %q", how)
	}
}

// sessionKey returns a file with a key for sessions.
func sessionKey(t *testing.T) string {
	t.Helper()
	return writeFile(t, "session.key", "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n")
}
