package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// replica is a registry that shares its store, as a sidecar has one.
type replica struct {
	*conversation.Registry

	t     *testing.T
	store *Store
	stop  func()
}

func startReplica(t *testing.T, s *server, change ...func(*conversation.RegistryConfig)) *replica {
	t.Helper()
	r := &replica{t: t}
	store := s.open(t, "p", func(o *Options) {
		o.OnUp = func(up bool) {
			if !up && r.Registry != nil {
				r.Apply(conversation.Change{Missed: true})
			}
		}
	})
	cfg := conversation.DefaultRegistryConfig()
	cfg.Servers, cfg.AgentServers = []string{"tools"}, map[string]conversation.AgentServerSettings{"default": {}}
	cfg.RetryInterval, cfg.FlushInterval = 50*time.Millisecond, 50*time.Millisecond
	for _, c := range change {
		c(&cfg)
	}
	var err error
	r.store = store
	r.Registry, err = conversation.NewRegistry(cfg, conversation.RegistryDeps{Store: store, Shared: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context()); err != nil && !errors.Is(err, conversation.ErrUnavailable) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	subscribed := make(chan struct{})
	wg.Go(func() {
		if err := r.Run(ctx); err != nil && !errors.Is(err, conversation.ErrUnavailable) {
			t.Errorf("Run: %v", err)
		}
	})
	wg.Go(func() {
		once := sync.OnceFunc(func() { close(subscribed) })
		_ = store.Watch(ctx, func(c conversation.Change) {
			r.Apply(c)
			if c.Missed {
				once()
			}
		})
	})
	r.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(r.stop)
	if s.p != nil {
		<-subscribed
	}
	return r
}

func (r *replica) settle(hash string) {
	r.t.Helper()
	if _, _, err := r.Settle(r.t.Context(), "tools", hash, nil, time.Now()); err != nil {
		r.t.Fatal(err)
	}
}

func (r *replica) register(id conversation.ID) {
	r.t.Helper()
	if _, _, err := r.Register(r.t.Context(), conversation.Registration{ID: id, Source: conversation.SourceAdmin}); err != nil {
		r.t.Fatal(err)
	}
}

// refresh records that a conversation got what its server offers.
func (r *replica) refresh(id conversation.ID) {
	r.t.Helper()
	v, err := r.Get(id)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := r.Update(r.t.Context(), id, func(c *conversation.Conversation) error {
		s := v.Servers["tools"]
		c.Refreshed(v, map[string]conversation.Applied{"tools": {
			Generation: s.Desired, Hash: s.DesiredHash, How: conversation.HowAcknowledged, At: time.Now(),
		}})
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
}

// wait waits until a conversation has a state, "" for not being there.
func (r *replica) wait(id conversation.ID, want conversation.State) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%s to be %q", id, want), func() bool {
		v, err := r.Get(id)
		return err != nil && want == "" || err == nil && v.State == want
	})
}

func TestReplicasShareConversations(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	a, b := startReplica(t, server), startReplica(t, server)
	a.settle("one")
	a.register("x")
	b.wait("x", conversation.StateStale)
	b.refresh("x")
	a.wait("x", conversation.StateCurrent)

	b.settle("two")
	a.wait("x", conversation.StateStale)
	if g, _ := a.Generation("tools"); g.Number != 2 || g.Hash != "two" {
		t.Errorf("the generation is %d, %s", g.Number, g.Hash)
	}
	a.settle("two") // the same is nothing new
	if g, _ := a.Generation("tools"); g.Number != 2 {
		t.Errorf("the generation is %d", g.Number)
	}

	began := time.Now()
	b.Seen(conversation.Sighting{ID: "x", Server: "tools", Source: conversation.SourceURL})
	b.Listed(conversation.Listing{ID: "x", Server: "tools", Generation: 2, Began: time.Now(), Ended: time.Now(), Complete: true})
	eventually(t, "the listing to be known", func() bool {
		return a.Observed("x", "tools", began.Add(-time.Second), 2) && a.Mapped("x", "tools")
	})

	if err := b.Remove(t.Context(), "x"); err != nil {
		t.Fatal(err)
	}
	a.wait("x", "")
	a.Seen(conversation.Sighting{ID: "x", Server: "tools", Source: conversation.SourceURL}) // an echo
	if _, err := a.Get("x"); !errors.Is(err, conversation.ErrNotFound) {
		t.Errorf("traffic registered again what another replica removed: %v", err)
	}
}

// TestNewConversationListsByItself: a conversation that was registered by its traffic elsewhere just now isn't refreshed here meanwhile.
func TestNewConversationListsByItself(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	a, b := startReplica(t, server), startReplica(t, server)
	a.settle("one")
	b.settle("one")
	a.Seen(conversation.Sighting{ID: "x", Server: "tools", Source: conversation.SourceURL})
	b.wait("x", conversation.StateStale)
	if ids, _ := b.Due(time.Now()); len(ids) > 0 {
		t.Errorf("%v is due where it was never seen", ids)
	}
	b.Listed(conversation.Listing{ID: "x", Server: "tools", Generation: 1, Began: time.Now(), Ended: time.Now(), Complete: true})
	a.wait("x", conversation.StateCurrent)
	b.wait("x", conversation.StateCurrent)
}

// TestReplicasWithoutStore: while the store is away each replica goes on by itself, and then all know all.
func TestReplicasWithoutStore(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	a, b := startReplica(t, server), startReplica(t, server)
	a.settle("one")
	a.register("x")
	a.register("gone")
	b.wait("gone", conversation.StateStale)
	b.wait("x", conversation.StateStale)

	server.p.Kill()
	a.refresh("x")
	a.register("new")
	if err := a.Remove(t.Context(), "gone"); err != nil {
		t.Fatal(err)
	}
	b.SessionLost("new", "tools") // not known there
	if _, err := b.Update(t.Context(), "x", func(c *conversation.Conversation) error { c.Attempts = 7; return nil }); err != nil {
		t.Fatal(err)
	}
	if b.Saved("x") {
		t.Error("what the store doesn't have counts as saved")
	}
	if b.Mapped("x", "tools") {
		t.Error("a replica relies on listings that it can't hear of")
	}
	server.start()
	for _, r := range []*replica{a, b} {
		r.wait("x", conversation.StateCurrent)
		r.wait("new", conversation.StateStale)
		r.wait("gone", "")
	}
}

// TestStartWithoutStore: a replica that begins without the store reads it when it is there.
func TestStartWithoutStore(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	a := startReplica(t, server)
	a.settle("one")
	a.register("x")
	a.refresh("x")
	a.stop()
	server.p.Kill()
	server.p = nil
	b := startReplica(t, server)
	if _, err := b.Get("x"); !errors.Is(err, conversation.ErrNotFound) {
		t.Fatalf("Get: %v", err)
	}
	server.start()
	b.wait("x", conversation.StateCurrent)
}

// TestStoreLosesData: everything is registered again, and refreshed once.
func TestStoreLosesData(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	a, b := startReplica(t, server), startReplica(t, server)
	a.settle("one")
	a.settle("two")
	for _, id := range []conversation.ID{"x", "y"} {
		a.register(id)
		b.wait(id, conversation.StateStale)
		a.refresh(id)
		b.wait(id, conversation.StateCurrent)
	}
	server.p.Kill()
	server.dir = t.TempDir()
	server.start()
	for _, r := range []*replica{a, b} {
		r.wait("x", conversation.StateStale)
		r.wait("y", conversation.StateStale)
		if g, _ := r.Generation("tools"); g.Number != 2 {
			t.Errorf("the generation is %d", g.Number)
		}
	}
	eventually(t, "both to be written", func() bool { return a.Saved("x") && b.Saved("x") && a.Saved("y") && b.Saved("y") })
	if g, err := a.store.Generation(t.Context(), "tools"); err != nil || g.Number != 2 {
		t.Errorf("the store has generation %d, %v", g.Number, err)
	}
	a.refresh("x")
	b.wait("x", conversation.StateCurrent)
	b.refresh("y")
	a.wait("y", conversation.StateCurrent)
}

// TestExpiryOnReplicas: a sign of life at one replica keeps a registration at all of them.
func TestExpiryOnReplicas(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	short := func(c *conversation.RegistryConfig) { c.TTL, c.SweepInterval = 3*time.Second, 100*time.Millisecond }
	a, b := startReplica(t, server, short), startReplica(t, server, short)
	for _, id := range []conversation.ID{"alive", "dead"} {
		a.Seen(conversation.Sighting{ID: id, Server: "tools", Source: conversation.SourceURL})
		b.wait(id, conversation.StateCurrent)
	}
	ended := time.Now().Add(6 * time.Second)
	eventually(t, "the end of one", func() bool {
		a.Seen(conversation.Sighting{ID: "alive", Server: "tools", Source: conversation.SourceURL})
		_, errA := a.Get("dead")
		_, errB := b.Get("dead")
		return errA != nil && errB != nil && time.Now().After(ended)
	})
	for _, r := range []*replica{a, b} {
		if _, err := r.Get("alive"); err != nil {
			t.Errorf("the one that is alive: %v", err)
		}
	}
}
