package conversation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Settle says which tools a server offers, after its list has settled. An unchanged hash keeps the generation, any other begins the next one.
// changed tells that a generation took the place of another, so it is false for the very first of a server. With several replicas it is for
// what all of them agree on (see Group); when another was faster, its generation is returned, maybe with another hash. The error is about ctx and
// arguments only: without the store the generation holds in memory and is written later.
func (r *Registry) Settle(ctx context.Context, server, hash string, tools map[string]string, at time.Time) (g Generation, changed bool, err error) {
	if hash == "" {
		return Generation{}, false, fmt.Errorf("%w generation of server %q: its hash is empty", ErrInvalid, server)
	}
	r.mu.Lock()
	_, err = r.configuredServer(server)
	r.mu.Unlock()
	if err != nil {
		return Generation{}, false, err
	}
	r.genMu.Lock()
	defer r.genMu.Unlock()
	present, known := r.Generation(server)
	if !known {
		switch stored, err := r.store.Generation(ctx, server); {
		case err == nil:
			present, known = stored, true
			r.publish(stored)
		case ctx.Err() != nil:
			return Generation{}, false, fmt.Errorf("reading the generation of server %q: %w", server, err)
		}
	}
	if known && present.Hash == hash {
		return present, false, nil
	}
	next := Generation{Server: server, Number: present.Number + 1, Hash: hash, At: at.UTC(), Tools: maps.Clone(tools)}
	next, err = r.saveGeneration(ctx, next)
	switch {
	case err == nil:
		r.publish(next)
	case ctx.Err() != nil:
		return Generation{}, false, fmt.Errorf("storing generation %d of server %q: %w", next.Number, server, err)
	default:
		r.publishUnsaved(next)
	}
	return next, known, nil
}

// Swapped begins a new generation of a server with the tools of the one before, so that all its conversations become stale. It is written by
// Run.
func (r *Registry) Swapped(server string) {
	r.genMu.Lock()
	defer r.genMu.Unlock()
	g, ok := r.Generation(server)
	if !ok {
		return
	}
	g.Number++
	g.At = r.clock.now()
	r.publishUnsaved(g)
}

// Generation returns the newest generation of a server, false while none is known. Its Tools are not to be changed.
func (r *Registry) Generation(server string) (Generation, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.servers[server]
	if s == nil || s.offer == nil {
		return Generation{}, false
	}
	return s.offer.Generation, true
}

// publish makes a stored generation the desired one.
func (r *Registry) publish(g Generation) { r.offer(g, true) }

// publishUnsaved makes a generation the desired one before the store has it.
func (r *Registry) publishUnsaved(g Generation) {
	r.offer(g, false)
	r.unsaved.Store(true)
	signal(r.kick)
}

func (r *Registry) offer(g Generation, saved bool) {
	g.Hash = intern(g.Hash)
	r.mu.Lock()
	defer r.mu.Unlock()
	next := &offer{Generation: g, saved: saved}
	s := r.serverNamed(g.Server)
	if s.offer != nil {
		next.settled = s.offer.settled[max(0, len(s.offer.settled)-historyLength+1):]
	}
	next.settled = append(slices.Clip(next.settled), settled{number: g.Number, at: nanos(g.At)})
	s.offer = next
	r.onGen()
	r.stats = nil
	r.rebuildDue()
}

// saveGenerations writes the generations that the store doesn't have yet. Nothing that names them may be written before.
func (r *Registry) saveGenerations(ctx context.Context) error {
	if !r.unsaved.Load() {
		return nil
	}
	r.genMu.Lock()
	defer r.genMu.Unlock()
	var unsaved []Generation
	r.mu.Lock()
	for _, s := range r.servers {
		if s.offer != nil && !s.offer.saved {
			unsaved = append(unsaved, s.offer.Generation)
		}
	}
	r.mu.Unlock()
	for _, g := range unsaved {
		saved, err := r.saveGeneration(ctx, g)
		if err != nil {
			return err
		}
		if saved.Number != g.Number || saved.Hash != g.Hash {
			r.publish(saved)
			continue
		}
		r.mu.Lock()
		r.servers[g.Server].offer.saved = true
		r.mu.Unlock()
	}
	r.unsaved.Store(false)
	return nil
}

// saveGeneration writes g and returns what the store then has: g, maybe with a higher number where another replica was faster, or the other
// replica's if that has the same hash. genMu is held.
func (r *Registry) saveGeneration(ctx context.Context, g Generation) (Generation, error) {
	for range maxConflicts {
		err := r.store.PutGeneration(ctx, g)
		r.noteStore(ctx, err)
		if err == nil {
			return g, nil
		}
		if !errors.Is(err, ErrConflict) {
			return g, fmt.Errorf("storing generation %d of server %q: %w", g.Number, g.Server, err)
		}
		stored, err := r.store.Generation(ctx, g.Server)
		switch {
		case err != nil && !errors.Is(err, ErrNotFound):
			return g, fmt.Errorf("reading the generation of server %q: %w", g.Server, err)
		case stored.Number < g.Number: // numbers in between were never written
			fill := g
			for fill.Number = stored.Number + 1; fill.Number < g.Number; fill.Number++ {
				if err := r.store.PutGeneration(ctx, fill); err != nil && !errors.Is(err, ErrConflict) {
					return g, fmt.Errorf("storing generation %d of server %q: %w", fill.Number, g.Server, err)
				}
			}
		case stored.Hash == g.Hash, r.shared != nil: // what the group has said since is newer than what we know
			return stored, nil
		default:
			g.Number = stored.Number + 1
		}
	}
	return g, fmt.Errorf("storing generation %d of server %q: %w, again and again", g.Number, g.Server, ErrConflict)
}
