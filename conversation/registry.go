package conversation

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Registry knows every conversation and what each needs. See the package comment.
//
// Memory leads: what traffic tells is noted there at once and written by Run. What is asked for (Register, Update, Refresh, Remove) is
// written before the call returns, one write at a time per conversation, by compare-and-swap; if the store can't take it, it counts in memory
// and Run writes it later.
type Registry struct {
	store   Store
	shared  SharedStore // the same store, nil if this is its only user
	log     *slog.Logger
	metrics *Metrics
	clock   clock
	onGen   func()

	changed chan struct{} // see Changed
	kick    chan struct{} // tells Run that something waits to be written
	missed  chan struct{} // tells Run that changes of the store may have been missed

	seed      maphash.Seed
	stripes   [128]sync.Mutex // one store write at a time per conversation; taken before mu
	genMu     sync.Mutex      // one store write at a time about generations; taken before mu
	unsaved   atomic.Bool     // some generation isn't in the store
	storeDown atomic.Bool     // the last write failed
	sharing   sharing

	mu      sync.Mutex
	cfg     RegistryConfig
	servers map[string]*server
	agents  map[string]*agentServer
	entries map[ID]*entry
	order   []*entry // by id
	due     dueHeap
	dirty   map[ID]struct{}
	touched []ID
	removed map[ID]removal
	stats   *stats
}

// removal remembers a conversation that was removed.
type removal struct {
	until    stamp  // traffic doesn't register it again before
	pending  bool   // the store still has it
	revision uint64 // there
}

// NewRegistry returns an empty registry. Call Load before use, and Run for as long as it is used.
func NewRegistry(cfg RegistryConfig, d RegistryDeps) (*Registry, error) {
	if d.Store == nil {
		return nil, errors.New("conversation registry: a store is required")
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Metrics == nil {
		d.Metrics = NewMetrics(nil)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.OnGeneration == nil {
		d.OnGeneration = func() {}
	}
	r := &Registry{
		store:   d.Store,
		shared:  d.Shared,
		onGen:   d.OnGeneration,
		log:     d.Logger.With("component", "conversation"),
		metrics: d.Metrics,
		clock:   newClock(d.Now),
		changed: make(chan struct{}, 1),
		kick:    make(chan struct{}, 1),
		missed:  make(chan struct{}, 1),
		sharing: sharing{wake: make(chan struct{}, 1)},
		seed:    maphash.MakeSeed(),
		entries: make(map[ID]*entry),
		servers: make(map[string]*server),
		agents:  make(map[string]*agentServer),
		dirty:   make(map[ID]struct{}),
		removed: make(map[ID]removal),
	}
	if err := r.SetConfig(cfg); err != nil {
		return nil, err
	}
	d.Metrics.conversations.registry.Store(r)
	return r, nil
}

// SetConfig replaces the configuration. Conversations of servers and agent servers that are no longer there are kept, but need nothing.
func (r *Registry) SetConfig(cfg RegistryConfig) error {
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("conversation registry: %w", err)
	}
	cfg.Servers = slices.Clone(cfg.Servers)
	cfg.AgentServers = maps.Clone(cfg.AgentServers)
	slices.Sort(cfg.Servers)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, server := range r.cfg.Servers {
		if !slices.Contains(cfg.Servers, server) {
			r.metrics.mixedSince.DeleteLabelValues(server)
		}
	}
	for _, server := range cfg.Servers {
		r.metrics.mixedSince.WithLabelValues(server)
	}
	r.configure(cfg)
	r.stats = nil
	r.rebuildDue()
	return nil
}

// Load reads everything that the store has. It is called once, before anything else is done with the registry.
func (r *Registry) Load(ctx context.Context) error {
	if err := r.noteIncarnation(ctx); err != nil {
		return err
	}
	for _, server := range r.config().Servers {
		g, err := r.store.Generation(ctx, server)
		switch {
		case errors.Is(err, ErrNotFound):
		case err != nil:
			return fmt.Errorf("loading the generation of server %q: %w", server, err)
		default:
			r.publish(g)
		}
	}

	now := r.clock.now()
	var order []*entry
	for c, err := range r.store.All(ctx) {
		if err != nil {
			if c.ID == "" {
				return fmt.Errorf("loading conversations: %w", err)
			}
			r.log.Error("conversation left out: its stored record can't be read", "conversation", c.ID, "err", err)
			continue
		}
		e := &entry{version: 1, pos: -1}
		r.mu.Lock()
		r.set(e, loaded(c, now))
		r.mu.Unlock()
		order = append(order, e)
	}
	entries := make(map[ID]*entry, len(order))
	for _, e := range order {
		entries[e.id] = e
	}
	slices.SortFunc(order, func(a, b *entry) int { return cmp.Compare(a.id, b.id) })

	r.mu.Lock()
	defer r.mu.Unlock()
	r.entries, r.order, r.stats = entries, slices.Clip(order), nil
	r.rebuildDue()
	return nil
}

// maxStoredWait bounds the wait for a next attempt that was stored by an earlier process, maybe by another clock.
const maxStoredWait = 10 * time.Minute

// loaded corrects times that lie in the future: the clock was wrong then, or it is now.
func loaded(c Conversation, now time.Time) Conversation {
	if c.LastActive.After(now) {
		c.LastActive = now
	}
	if c.RenewedAt.After(now) {
		c.RenewedAt = now
	}
	if limit := now.Add(maxStoredWait); c.NextAttempt.After(limit) {
		c.NextAttempt = limit
	}
	return c
}

// config returns the present configuration. The maps and slices in it are never changed.
func (r *Registry) config() RegistryConfig {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.cfg
}

// insert adds an entry to memory. mu is held.
func (r *Registry) insert(e *entry) {
	e.pos = -1
	r.entries[e.id] = e
	i, _ := slices.BinarySearchFunc(r.order, e.id, func(o *entry, id ID) int { return cmp.Compare(o.id, id) })
	r.order = slices.Insert(r.order, i, e)
	r.reindex(e)
}

// drop takes an entry out of memory. mu is held.
func (r *Registry) drop(e *entry) {
	delete(r.entries, e.id)
	delete(r.dirty, e.id)
	if i, ok := slices.BinarySearchFunc(r.order, e.id, func(o *entry, id ID) int { return cmp.Compare(o.id, id) }); ok {
		r.order = slices.Delete(r.order, i, i+1)
	}
	r.due.remove(e)
}

// changedInMemory notes that memory is ahead of the store, and what follows from the change. mu is held.
func (r *Registry) changedInMemory(e *entry) {
	e.version++
	r.markDirty(e)
	r.reindex(e)
}

// markDirty has Run write the entry. mu is held.
func (r *Registry) markDirty(e *entry) {
	e.dirty = true
	r.dirty[e.id] = struct{}{}
	signal(r.kick)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// Changed is signalled (one consumer) when conversations may have become due, or due earlier.
func (r *Registry) Changed() <-chan struct{} { return r.changed }
