package conversation

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
)

const (
	// flushWriters is how many writes are under way at once: stores put what comes together into one commit.
	flushWriters = 64
	// touchBatch is how many signs of life are handed to the store at once.
	touchBatch = 5000
	// lastFlush bounds the writing after Run was told to end.
	lastFlush = 5 * time.Second
)

// Run writes what waits to be written and forgets registrations whose time is over, until ctx ends; then it writes once more.
func (r *Registry) Run(ctx context.Context) error {
	if r.shared == nil {
		return r.run(ctx)
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return r.run(ctx) })
	group.Go(func() error { return r.tellListings(ctx) })
	return group.Wait()
}

func (r *Registry) run(ctx context.Context) error {
	cfg := r.config()
	flush, sweep := time.NewTimer(cfg.FlushInterval), time.NewTimer(cfg.SweepInterval)
	defer flush.Stop()
	defer sweep.Stop()
	retry, resync := time.NewTimer(cfg.RetryInterval), time.NewTimer(cfg.ResyncInterval)
	retry.Stop()
	if r.shared == nil {
		resync.Stop()
	}
	defer retry.Stop()
	defer resync.Stop()

	kick := r.kick
	write := func(err error) { // after a failure, nothing but the retry timer tries again
		kick = r.kick
		if err != nil && ctx.Err() == nil {
			kick = nil
			retry.Reset(r.config().RetryInterval)
		}
	}
	for {
		select {
		case <-ctx.Done():
			return r.flushLast(context.WithoutCancel(ctx))
		case <-kick:
			write(r.flush(ctx))
		case <-retry.C:
			write(r.flush(ctx))
		case <-r.missed:
			resync.Reset(r.resync(ctx))
			write(r.flush(ctx))
		case <-resync.C:
			resync.Reset(r.resync(ctx))
		case <-flush.C:
			if kick != nil {
				write(errors.Join(r.flush(ctx), r.flushTouched(ctx, false)))
			}
			flush.Reset(r.config().FlushInterval)
		case <-sweep.C:
			r.sweep(ctx)
			sweep.Reset(r.config().SweepInterval)
		}
	}
}

func (r *Registry) flushLast(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, lastFlush, errors.New("writing conversations before the end took too long"))
	defer cancel()
	err := r.flush(ctx)
	if err := r.flushTouched(ctx, true); err != nil {
		r.log.Warn("signs of life not all written: some conversations will seem idle for longer than they are", "err", err)
	}
	return err
}

// flush writes everything that memory has and the store hasn't, but for signs of life.
func (r *Registry) flush(ctx context.Context) error {
	if err := r.saveGenerations(ctx); err != nil {
		return err
	}
	r.mu.Lock()
	ids := make([]ID, 0, len(r.dirty))
	for id := range r.dirty {
		ids = append(ids, id)
	}
	var removed []ID
	for id, gone := range r.removed {
		if gone.pending {
			removed = append(removed, id)
		}
	}
	r.mu.Unlock()

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(flushWriters)
	for _, id := range ids {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error { return r.persist(ctx, id) })
	}
	for _, id := range removed {
		group.Go(func() error { return r.persistRemoval(ctx, id) })
	}
	return group.Wait()
}

// persistRemoval deletes from the store what is removed from memory.
func (r *Registry) persistRemoval(ctx context.Context, id ID) error {
	mu := r.stripe(id)
	mu.Lock()
	defer mu.Unlock()
	r.mu.Lock()
	gone := r.removed[id]
	r.mu.Unlock()
	if !gone.pending {
		return nil
	}
	err := r.store.Delete(ctx, id, gone.revision)
	r.noteStore(ctx, err)
	// A conflict means that another replica has a newer registration: it is in force.
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	gone.pending = false
	r.removed[id] = gone
	return nil
}

// renewalGrain is how much later a registration must have been renewed for that to be worth a write: discovery renews all of them again and
// again.
const renewalGrain = stamp(10 * time.Minute)

// renewalGrain is less where another replica might end the registration for want of a sign of life. mu is held.
func (r *Registry) renewalGrain(e *entry) stamp {
	ttl := r.life(e)
	if r.shared == nil || ttl == 0 {
		return renewalGrain
	}
	return min(renewalGrain, stamp(ttl)/3)
}

// activityGrain is how much later a conversation must have been active for that to be worth a write: what is lost in a crash makes it seem
// idle for that much longer.
func activityGrain(e *entry) stamp {
	if e.agent.idleAfter == 0 {
		return renewalGrain
	}
	return min(renewalGrain, stamp(e.agent.idleAfter/10))
}

// flushTouched writes the signs of life that are worth it; the last time, all activity is.
func (r *Registry) flushTouched(ctx context.Context, last bool) error {
	r.mu.Lock()
	var ids, wait []ID
	for _, id := range r.touched {
		e := r.entries[id]
		switch {
		case e == nil:
		case e.renewed-e.renewedSaved >= r.renewalGrain(e), e.active-e.activeSaved >= min(activityGrain(e), r.renewalGrain(e)),
			last && e.active != e.activeSaved:
			ids = append(ids, id)
		default:
			wait = append(wait, id)
		}
	}
	r.touched = wait
	r.mu.Unlock()

	slices.Sort(ids) // neighbours are written together
	for len(ids) > 0 {
		n := min(len(ids), touchBatch)
		if err := r.writeTouches(ctx, ids[:n]); err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			for _, id := range ids[:n] {
				if e := r.entries[id]; e != nil {
					e.touched, e.renewedSaved, e.activeSaved = true, 0, 0
				}
			}
			r.touched = append(r.touched, ids...) // one may be there twice now, which does no harm
			return err
		}
		ids = ids[n:]
	}
	return nil
}

func (r *Registry) writeTouches(ctx context.Context, ids []ID) error {
	touches := make([]Touch, 0, len(ids))
	r.mu.Lock()
	now := r.clock.now()
	for _, id := range ids {
		if e := r.entries[id]; e != nil {
			e.touched = false
			e.renewedSaved, e.activeSaved = e.renewed, e.active
			touches = append(touches, Touch{ID: id, LastActive: r.clock.time(e.active, now), RenewedAt: r.clock.time(e.renewed, now)})
		}
	}
	r.mu.Unlock()
	err := r.store.Touch(ctx, touches)
	r.noteStore(ctx, err)
	return err
}

// sweep forgets registrations whose time is over.
func (r *Registry) sweep(ctx context.Context) {
	var expired []ID
	r.mu.Lock()
	now := r.clock.stamp(r.clock.now())
	for _, e := range r.order {
		if r.expiry(e) <= now {
			expired = append(expired, e.id)
		}
	}
	for id, gone := range r.removed {
		if !gone.pending && gone.until <= now {
			delete(r.removed, id)
		}
	}
	r.mu.Unlock()
	if len(expired) == 0 {
		return
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(flushWriters)
	for _, id := range expired {
		group.Go(func() error {
			err := r.remove(ctx, id, resultExpired, func(e *entry) bool {
				return r.expiry(e) <= r.clock.stamp(r.clock.now())
			})
			if errors.Is(err, ErrNotFound) {
				return nil
			}
			return err
		})
	}
	if err := group.Wait(); err != nil && ctx.Err() == nil {
		r.log.Warn("expired conversations not all removed: the next sweep tries again", "err", err)
	}
	r.log.Info("conversations expired", "count", len(expired))
}
