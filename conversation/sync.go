package conversation

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// TopicListings is the topic of the messages by which replicas tell each other which conversations listed their tools.
	TopicListings = "listings"
	// maxListings bounds how many listings wait to be told; what doesn't fit costs an observation, nothing else.
	maxListings = 10_000
	// resyncReaders is how many records are read at once.
	resyncReaders = 16
	// deafness is how long after changes may have been missed an unseen listing proves nothing: longer than a refresh takes.
	deafness = stamp(time.Minute)
)

// sharing is what a registry needs because others work with its store.
type sharing struct {
	mu       sync.Mutex
	listings []Listing     // that the others don't know yet
	wake     chan struct{} // tells tellListings

	// Guarded by Registry.mu.
	incarnation string // of the store's data
	round       uint64 // of comparing the store with memory
	deaf        bool   // what others tell isn't heard
	heard       bool   // it was heard before
	heardSince  stamp  // after it wasn't; 0 if it always was
}

// add keeps a listing for the other replicas. It never waits.
func (s *sharing) add(l Listing) {
	s.mu.Lock()
	if len(s.listings) < maxListings {
		s.listings = append(s.listings, l)
	}
	s.mu.Unlock()
	signal(s.wake)
}

func (s *sharing) take() []Listing {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.listings
	s.listings = nil
	return all
}

// toldListing is a Listing in a message: with ages, since the clocks of two machines differ.
type toldListing struct {
	ID         ID            `json:"id"`
	Server     string        `json:"server"`
	Generation uint64        `json:"generation"`
	Began      time.Duration `json:"began"` // ago
	Ended      time.Duration `json:"ended"` // ago
}

// tellListings tells the other replicas what was listed here, until ctx ends.
func (r *Registry) tellListings(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.sharing.wake:
		}
		all := r.sharing.take()
		for len(all) > 0 {
			n := min(len(all), 500)
			now := r.clock.now()
			told := make([]toldListing, n)
			for i, l := range all[:n] {
				told[i] = toldListing{l.ID, l.Server, l.Generation, now.Sub(l.Began), now.Sub(l.Ended)}
			}
			all = all[n:]
			body, err := json.Marshal(told)
			if err == nil {
				err = r.shared.Tell(ctx, TopicListings, body)
			}
			if err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
				r.log.Warn("telling other replicas of listings failed: a refresh may be repeated", "err", err)
			}
		}
	}
}

// hear notes listings that another replica saw.
func (r *Registry) hear(body []byte) {
	var told []toldListing
	if json.Unmarshal(body, &told) != nil {
		return // of another version
	}
	now := r.clock.now()
	for _, l := range told {
		r.listed(Listing{ID: l.ID, Server: l.Server, Generation: l.Generation, Began: now.Add(-l.Began), Ended: now.Add(-l.Ended), Complete: true})
	}
}

// Apply takes over what another replica changed or told. It is for SharedStore.Watch.
func (r *Registry) Apply(c Change) {
	switch {
	case c.Missed:
		r.mu.Lock()
		r.sharing.deaf = true
		r.mu.Unlock()
		signal(r.missed)
	case c.Conversation != nil:
		r.applyPut(*c.Conversation)
	case c.Removed != "":
		r.applyRemoval(c.Removed)
	case c.Generation != nil:
		r.applyGeneration(*c.Generation)
	case c.Touches != nil:
		r.applyTouches(c.Touches)
	case c.Message != nil && c.Message.Topic == TopicListings:
		r.hear(c.Message.Body)
	}
}

func (r *Registry) applyPut(c Conversation) {
	mu := r.stripe(c.ID)
	mu.Lock()
	defer mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[c.ID]
	if e != nil && e.revision >= c.Revision {
		return // old news
	}
	if gone := r.removed[c.ID]; gone.pending && gone.revision >= c.Revision {
		return // we removed it and the store doesn't know yet
	}
	r.takeOver(e, c)
}

func (r *Registry) applyRemoval(id ID) {
	mu := r.stripe(id)
	mu.Lock()
	defer mu.Unlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.entries[id]; e != nil {
		r.drop(e)
	}
	r.removed[id] = removal{until: r.clock.stamp(r.clock.now()) + stamp(r.cfg.RemovedGrace)}
}

func (r *Registry) applyGeneration(g Generation) {
	r.genMu.Lock()
	defer r.genMu.Unlock()
	if present, known := r.Generation(g.Server); known && present.Number >= g.Number {
		return
	}
	r.publish(g)
}

func (r *Registry) applyTouches(touches []Touch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range touches {
		if e := r.entries[t.ID]; e != nil {
			r.applyTouch(e, t)
		}
	}
}

// applyTouch notes signs of life that the store has. mu is held.
func (r *Registry) applyTouch(e *entry, t Touch) {
	now := r.clock.now()
	renewed, active := min(r.clock.stamp(t.RenewedAt), r.clock.stamp(now)), min(r.clock.stamp(t.LastActive), r.clock.stamp(now))
	e.renewed, e.renewedSaved = later(e.renewed, renewed), later(e.renewedSaved, renewed)
	if later(e.active, active) != e.active {
		e.active = active
		r.reindex(e) // it may have been idle
	}
	e.activeSaved = later(e.activeSaved, active)
}

// Reload reads a conversation anew from a shared store. ErrNotFound if it isn't there any more.
func (r *Registry) Reload(ctx context.Context, id ID) error {
	mu := r.stripe(id)
	mu.Lock()
	defer mu.Unlock()
	if err := r.reload(ctx, id); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.entries[id] == nil {
		return ErrNotFound
	}
	return nil
}

// Saved tells whether the store has all that is known of a conversation, but for signs of life.
func (r *Registry) Saved(id ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	return e == nil || !e.dirty
}

// resync compares the store with memory and takes over what is different. It returns when to do that again.
func (r *Registry) resync(ctx context.Context) (next time.Duration) {
	cfg := r.config()
	err := r.compare(ctx, cfg.Servers)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err != nil {
		if ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
			r.log.Warn("comparing memory with the store failed: it is tried again", "err", err)
		}
		return cfg.RetryInterval
	}
	if r.sharing.deaf && r.sharing.heard {
		r.sharing.heardSince = r.clock.stamp(r.clock.now())
	}
	r.sharing.deaf, r.sharing.heard = false, true
	return cfg.ResyncInterval
}

func (r *Registry) compare(ctx context.Context, servers []string) error {
	if _, err := r.dataLost(ctx); err != nil {
		return err
	}
	for _, server := range servers {
		g, err := r.store.Generation(ctx, server)
		switch {
		case err == nil:
			r.applyGeneration(g)
		case !errors.Is(err, ErrNotFound):
			return fmt.Errorf("reading the generation of server %q: %w", server, err)
		}
	}
	r.mu.Lock()
	r.sharing.round++
	round := r.sharing.round
	r.mu.Unlock()
	var differ []ID
	for h, err := range r.shared.Heads(ctx) {
		if err != nil && h.ID == "" {
			return fmt.Errorf("reading conversations: %w", err)
		}
		r.mu.Lock()
		e := r.entries[h.ID]
		if e != nil {
			e.round = round
			r.applyTouch(e, h.Touch)
		}
		if err == nil && (e == nil || e.revision != h.Revision) && !r.removed[h.ID].pending {
			differ = append(differ, h.ID)
		}
		r.mu.Unlock()
	}
	r.mu.Lock()
	for _, e := range r.order {
		if e.round != round && e.revision != 0 {
			differ = append(differ, e.id) // removed, or new since
		}
	}
	r.mu.Unlock()
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(resyncReaders)
	for _, id := range differ {
		readers.Go(func() error {
			if err := r.Reload(ctx, id); err != nil && !errors.Is(err, ErrNotFound) {
				return err
			}
			return nil
		})
	}
	return readers.Wait()
}

// noteIncarnation remembers which data the store has.
func (r *Registry) noteIncarnation(ctx context.Context) error {
	if r.shared == nil {
		return nil
	}
	name, err := r.shared.Incarnation(ctx)
	if err != nil {
		return fmt.Errorf("reading the state of a shared store: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sharing.incarnation = name
	return nil
}

// dataLost finds out whether the store has lost what it had. Then all that is in memory is to be written again, as registrations of which
// nothing is known: they are refreshed once.
func (r *Registry) dataLost(ctx context.Context) (bool, error) {
	if r.shared == nil {
		return false, nil
	}
	name, err := r.shared.Incarnation(ctx)
	if err != nil {
		return false, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.sharing.incarnation
	r.sharing.incarnation = name
	if before == "" || before == name {
		return false, nil
	}
	r.log.Warn("the store has lost its data: registering all conversations again, each is refreshed once", "conversations", len(r.order))
	for _, e := range r.order {
		e.revision = 0
		for i := range e.bindings {
			e.bindings[i].apply(Applied{})
			e.bindings[i].tried = 0
		}
		e.condition, e.attempts, e.lastError, e.next = ConditionNone, 0, nil, 0
		e.version++
		r.markDirty(e)
	}
	for id, gone := range r.removed {
		gone.pending = false
		r.removed[id] = gone
	}
	for _, s := range r.servers {
		if s.offer != nil {
			s.offer.saved = false
			r.unsaved.Store(true)
		}
	}
	r.stats = nil
	r.rebuildDue()
	return true, nil
}
