package conversation

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"reflect"
	"sync"
)

// maxConflicts bounds how often one change is tried again because another writer was faster.
const maxConflicts = 32

// stripe returns the lock for store writes about id.
func (r *Registry) stripe(id ID) *sync.Mutex {
	return &r.stripes[maphash.String(r.seed, string(id))%uint64(len(r.stripes))]
}

// Update changes a conversation: fn gets the present value and may be called several times, when others change it meanwhile; it must not keep
// the pointer. An error of fn ends the update and is returned as it is. ErrNotFound if there is no such conversation. Without the store the
// change holds in memory and is written later.
func (r *Registry) Update(ctx context.Context, id ID, fn func(*Conversation) error) (Conversation, error) {
	return r.mutate(ctx, id, func(c *Conversation, exists bool) error {
		if !exists {
			return ErrNotFound
		}
		return fn(c)
	})
}

// mutate writes what fn makes of the present value, or of an empty one, to the store and then to memory.
func (r *Registry) mutate(ctx context.Context, id ID, fn func(c *Conversation, exists bool) error) (Conversation, error) {
	mu := r.stripe(id)
	mu.Lock()
	defer mu.Unlock()
	for range maxConflicts {
		before, version := r.snapshot(id)
		exists := version != 0
		c := before.Clone()
		if err := fn(&c, exists); err != nil {
			return Conversation{}, err
		}
		c.ID, c.Revision = id, before.Revision
		if exists && reflect.DeepEqual(before, c) {
			return before, nil
		}
		stored, err := r.put(ctx, c)
		switch {
		case err == nil:
			if r.accept(stored, version, true) {
				return stored, nil
			}
		case errors.Is(err, ErrConflict):
			if err := r.reload(ctx, id); err != nil {
				return Conversation{}, err
			}
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return Conversation{}, fmt.Errorf("storing the conversation: %w", err)
		default:
			if r.accept(c, version, false) {
				return c, nil
			}
		}
	}
	return Conversation{}, fmt.Errorf("storing the conversation: %w, again and again", ErrConflict)
}

// put writes c, after the generations that it may name.
func (r *Registry) put(ctx context.Context, c Conversation) (Conversation, error) {
	if err := r.saveGenerations(ctx); err != nil {
		return Conversation{}, err
	}
	stored, err := r.store.Put(ctx, c)
	r.noteStore(ctx, err)
	return stored, err
}

// noteStore logs when the store goes away and when it is back.
func (r *Registry) noteStore(ctx context.Context, err error) {
	switch {
	case err == nil:
		if r.storeDown.CompareAndSwap(true, false) {
			r.metrics.SetStoreUp(true)
			r.log.Info("store is back: writing what waited")
		}
	case errors.Is(err, ErrConflict) || errors.Is(err, ErrNotFound) || errors.Is(err, ErrClosed) || ctx.Err() != nil:
	default:
		if r.storeDown.CompareAndSwap(false, true) {
			r.metrics.SetStoreUp(false)
			r.log.Error("store can't be written: going on in memory, changes are lost if the process ends now", "err", err)
		}
	}
}

// snapshot returns the value in memory and its version, 0 if there is none.
func (r *Registry) snapshot(id ID) (Conversation, uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		return Conversation{}, 0
	}
	return e.conversation(r.clock, r.clock.now()), e.version
}

// accept takes a written value into memory, unless memory moved on since version: then the change must be made again, on top of that.
func (r *Registry) accept(c Conversation, version uint64, stored bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[c.ID]
	if e != nil && e.version != version {
		e.revision = c.Revision
		return false
	}
	r.replace(e, c, !stored)
	return true
}

// replace sets an entry, a new one if e is nil. mu is held.
func (r *Registry) replace(e *entry, c Conversation, dirty bool) {
	known := e != nil
	if !known {
		e = new(entry)
	}
	if e.condition == ConditionParked && c.Condition != ConditionParked {
		e.resumed = r.clock.stamp(r.clock.now())
	}
	r.set(e, c)
	e.version++
	if !r.needs(e) {
		e.woken, e.resumed = 0, 0
	}
	if known {
		r.reindex(e)
	} else {
		r.insert(e)
	}
	delete(r.removed, e.id)
	if dirty {
		r.markDirty(e)
	} else {
		e.dirty = false
		delete(r.dirty, e.id)
	}
}

// reload takes over what another writer stored. What traffic told us and isn't stored yet is kept.
func (r *Registry) reload(ctx context.Context, id ID) error {
	c, err := r.store.Get(ctx, id)
	lost := false
	if errors.Is(err, ErrNotFound) {
		var lostErr error
		if lost, lostErr = r.dataLost(ctx); lostErr != nil {
			return fmt.Errorf("reading the conversation again: %w", lostErr)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	switch {
	case errors.Is(err, ErrNotFound):
		if e != nil && e.revision != 0 && !lost { // removed by another replica
			r.drop(e)
		}
		return nil
	case err != nil:
		return fmt.Errorf("reading the conversation again: %w", err)
	}
	r.takeOver(e, c)
	return nil
}

// takeOver takes what another writer stored. What memory knows and the store doesn't, since that was away or has lost its last moments, is
// kept. mu is held.
func (r *Registry) takeOver(e *entry, c Conversation) {
	now := r.clock.now()
	dirty := false
	c = loaded(c, now)
	if e != nil && (e.dirty || c.Revision < e.revision) {
		c, dirty = merge(c, e.conversation(r.clock, now))
	}
	r.replace(e, c, dirty)
	if e == nil && !c.Source.byOperator() && now.Sub(c.RegisteredAt) < r.cfg.RebuildGrace {
		e = r.entries[c.ID]
		e.woken = r.clock.stamp(now) // it may be listing its tools just now, as if its traffic had been seen here
		r.reindex(e)
	}
}

// merge adds to the stored value what must not get lost of the one in memory, and tells whether that made a difference. A refresh too many is
// better than one too few.
func merge(stored, local Conversation) (Conversation, bool) {
	merged := stored.Clone()
	if merged.Servers == nil {
		merged.Servers = make(map[string]Applied)
	}
	differs := false
	for server, ours := range local.Servers {
		theirs, ok := stored.Servers[server]
		newer := ours.Generation > theirs.Generation && (theirs.How != HowLost || ours.At.After(theirs.At))
		if !ok || newer || ours.How == HowLost && !theirs.At.After(ours.At) {
			merged.Servers[server] = ours
			differs = true
		}
		if newer { // so what failed before is over
			merged.Condition, merged.Attempts, merged.LastError = local.Condition, local.Attempts, cloneFailure(local.LastError)
			merged.NextAttempt, merged.Tried = local.NextAttempt, maps.Clone(local.Tried)
		}
	}
	if local.Forced && local.ForcedAt.After(stored.ForcedAt) {
		merged.Forced, merged.ForcedAt = true, local.ForcedAt
		differs = true
	}
	return merged, differs
}

// persist writes an entry that is ahead of the store.
func (r *Registry) persist(ctx context.Context, id ID) error {
	mu := r.stripe(id)
	mu.Lock()
	defer mu.Unlock()
	for range maxConflicts {
		r.mu.Lock()
		e := r.entries[id]
		if e == nil || !e.dirty {
			delete(r.dirty, id)
			r.mu.Unlock()
			return nil
		}
		c, version := e.conversation(r.clock, r.clock.now()), e.version
		r.mu.Unlock()

		stored, err := r.put(ctx, c)
		switch {
		case err == nil:
			r.mu.Lock()
			e.revision = stored.Revision
			if e.version == version {
				e.dirty = false
				delete(r.dirty, id)
			}
			r.mu.Unlock()
		case errors.Is(err, ErrConflict):
			if err := r.reload(ctx, id); err != nil {
				return err
			}
		default:
			return err
		}
	}
	return ErrConflict
}

// Refresh asks for a refresh whatever the state. ErrNotFound if there is no such conversation.
func (r *Registry) Refresh(ctx context.Context, id ID) error {
	_, err := r.Update(ctx, id, func(c *Conversation) error {
		now := r.clock.now()
		c.Forced, c.ForcedAt = true, now
		if c.Condition != ConditionNone {
			c.NextAttempt = now
		}
		return nil
	})
	return err
}
