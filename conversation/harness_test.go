package conversation_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/boltstore"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const idleAfter = 20 * time.Minute

// testConfig has the servers tools and other, and the agent servers default and second.
func testConfig() conversation.RegistryConfig {
	cfg := conversation.DefaultRegistryConfig()
	cfg.Servers = []string{"tools", "other"}
	cfg.AgentServers = map[string]conversation.AgentServerSettings{
		"default": {IdleAfter: idleAfter}, "second": {IdleAfter: idleAfter},
	}
	return cfg
}

func openStore(tb testing.TB, path string) *boltstore.Store {
	tb.Helper()
	o := boltstore.DefaultOptions()
	o.NoSync = true
	s, err := boltstore.Open(path, o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Close(); err != nil {
			tb.Errorf("closing the store: %v", err)
		}
	})
	return s
}

// flakyStore is a store that can be away.
type flakyStore struct {
	conversation.Store
	away   atomic.Bool
	writes atomic.Int64
}

var errAway = fmt.Errorf("%w: no space left", conversation.ErrUnavailable)

func (s *flakyStore) Put(ctx context.Context, c conversation.Conversation) (conversation.Conversation, error) {
	if s.away.Load() {
		return conversation.Conversation{}, errAway
	}
	s.writes.Add(1)
	return s.Store.Put(ctx, c)
}

func (s *flakyStore) Touch(ctx context.Context, touches []conversation.Touch) error {
	if s.away.Load() {
		return errAway
	}
	s.writes.Add(1)
	return s.Store.Touch(ctx, touches)
}

func (s *flakyStore) Delete(ctx context.Context, id conversation.ID, revision uint64) error {
	if s.away.Load() {
		return errAway
	}
	s.writes.Add(1)
	return s.Store.Delete(ctx, id, revision)
}

func (s *flakyStore) PutGeneration(ctx context.Context, g conversation.Generation) error {
	if s.away.Load() {
		return errAway
	}
	s.writes.Add(1)
	return s.Store.PutGeneration(ctx, g)
}

// harness is a registry with its store, in a bubble.
type harness struct {
	*conversation.Registry
	t     *testing.T
	store *flakyStore
	stop  func()
}

// bubble runs a test with a registry in virtual time.
func bubble(t *testing.T, test func(h *harness)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &flakyStore{Store: openStore(t, filepath.Join(t.TempDir(), "state.db"))}
		test(start(t, store, testConfig()))
	})
}

// start runs a registry on the store until the test ends or stop is called.
func start(t *testing.T, store *flakyStore, cfg conversation.RegistryConfig) *harness {
	t.Helper()
	r, err := conversation.NewRegistry(cfg, conversation.RegistryDeps{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.Run(ctx) }()
	stopped := false
	h := &harness{Registry: r, t: t, store: store}
	h.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil && !store.away.Load() {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(h.stop)
	return h
}

// restart stops the registry and starts another on what it stored.
func (h *harness) restart() *harness {
	h.t.Helper()
	h.stop()
	return start(h.t, h.store, testConfig())
}

func (h *harness) settle(server, hash string) conversation.Generation {
	h.t.Helper()
	g, _, err := h.Settle(h.t.Context(), server, hash, nil, time.Now())
	if err != nil {
		h.t.Fatalf("Settle(%q, %q): %v", server, hash, err)
	}
	return g
}

func (h *harness) register(reg conversation.Registration) conversation.Conversation {
	h.t.Helper()
	if reg.Source == "" {
		reg.Source = conversation.SourceAdmin
	}
	if reg.AgentServer == "" {
		reg.AgentServer = "default"
	}
	if len(reg.Servers) == 0 {
		reg.Servers = []string{"tools"}
	}
	c, _, err := h.Register(h.t.Context(), reg)
	if err != nil {
		h.t.Fatalf("Register(%+v): %v", reg, err)
	}
	return c
}

func (h *harness) view(id conversation.ID) conversation.View {
	h.t.Helper()
	v, err := h.Get(id)
	if err != nil {
		h.t.Fatalf("Get(%q): %v", id, err)
	}
	return v
}

func (h *harness) wantState(id conversation.ID, want conversation.State) {
	h.t.Helper()
	if v := h.view(id); v.State != want {
		h.t.Errorf("%q is %s, want %s: %+v", id, v.State, want, v)
	}
}

// wantDue checks that exactly ids are due now.
func (h *harness) wantDue(ids ...conversation.ID) {
	h.t.Helper()
	got, _ := h.Due(time.Now())
	have := make(map[conversation.ID]bool)
	for _, id := range got {
		have[id] = true
	}
	ok := len(have) == len(ids) && len(got) == len(have)
	for _, id := range ids {
		ok = ok && have[id]
	}
	if !ok {
		h.t.Errorf("due are %q, want %q", got, ids)
	}
}

// wantNext checks when the next conversation will be due, from now on; 0 is not by time alone.
func (h *harness) wantNext(want time.Duration) {
	h.t.Helper()
	_, next := h.Due(time.Now())
	switch {
	case next.IsZero() && want == 0:
	case next.IsZero() || time.Until(next) != want:
		h.t.Errorf("next is due in %v (%v), want %v", time.Until(next), next, want)
	}
}

func (h *harness) drainChanged() (signalled bool) {
	select {
	case <-h.Changed():
		return true
	default:
		return false
	}
}

// refreshed records a refresh that began when the conversation looked like v.
func (h *harness) refreshed(v conversation.View, how conversation.How) {
	h.t.Helper()
	applied := make(map[string]conversation.Applied)
	for server, s := range v.Servers {
		applied[server] = conversation.Applied{Generation: s.Desired, Hash: s.DesiredHash, How: how, At: time.Now()}
	}
	if _, err := h.Update(h.t.Context(), v.ID, func(c *conversation.Conversation) error {
		c.Refreshed(v, applied)
		return nil
	}); err != nil {
		h.t.Fatalf("Update(%q): %v", v.ID, err)
	}
}

// failed records a failed attempt that began when the conversation looked like v. A negative wait is "not until something changes".
func (h *harness) failed(v conversation.View, cond conversation.Condition, wait time.Duration) {
	h.t.Helper()
	var next time.Time
	if wait >= 0 {
		next = time.Now().Add(wait)
	}
	if _, err := h.Update(h.t.Context(), v.ID, func(c *conversation.Conversation) error {
		c.RefreshFailed(v, cond, conversation.Failure{Reason: "test", Message: "no", At: time.Now()}, next)
		return nil
	}); err != nil {
		h.t.Fatalf("Update(%q): %v", v.ID, err)
	}
}

func (h *harness) seen(id conversation.ID, server string) {
	h.Seen(conversation.Sighting{ID: id, AgentServer: "default", Server: server, Source: conversation.SourceURL})
}

// lists has the conversation list the tools that settled, now.
func (h *harness) lists(id conversation.ID) {
	g, _ := h.Generation("tools")
	h.Listed(conversation.Listing{
		ID: id, Server: "tools", Generation: g.Number, Began: time.Now(), Ended: time.Now(), Complete: true,
	})
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: error %v, want %v", what, err, want)
	}
}
