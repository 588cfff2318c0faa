package notify

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// Claims says which of several replicas refreshes a conversation. Nothing but the
// number of calls depends on it. Its methods are called concurrently.
type Claims interface {
	// Claim returns whether this replica may refresh the conversation now. When it
	// returns true, the registry knows what the other replicas have recorded. While it
	// returns false another one has the claim, or nobody can tell.
	Claim(ctx context.Context, id conversation.ID) bool
	// Unclaim ends a claim.
	Unclaim(ctx context.Context, id conversation.ID)
}

// claimed is a turn that only one replica may have at a time. before is what the
// conversation looked like when the turn began.
func (a *attempt) claimed(ctx, callCtx context.Context, before conversation.View) {
	r := a.r
	if !r.claims.Claim(callCtx, a.id) {
		r.deferred.put(a.id, time.Now().Add(jitter(r.cfg.ClaimInterval)))
		r.rescan.Store(true)

		return
	}
	defer r.claims.Unclaim(context.WithoutCancel(callCtx), a.id)
	v, err := r.registry.Get(a.id)
	switch {
	case err != nil:
		r.leave(a.id, false)
	case v.Revision != before.Revision: // another one dealt with it: whether it is due is to be asked again
		if r.plan(v).nothing {
			r.leave(a.id, false)
		}
		r.rescan.Store(true)
	default:
		a.view, a.targets = v, r.plan(v).targets
		a.record(callCtx, a.call(ctx, callCtx))
	}
}

// deferred are the conversations that another replica had a claim on, and until
// when they aren't to be tried.
type deferred struct {
	mu    sync.Mutex
	until map[conversation.ID]time.Time
}

func (d *deferred) put(id conversation.ID, until time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.until == nil {
		d.until = map[conversation.ID]time.Time{}
	}
	d.until[id] = until
}

func (d *deferred) has(id conversation.ID, now time.Time) bool {
	d.mu.Lock()
	defer d.mu.Unlock()

	return now.Before(d.until[id])
}

// next returns when the first of them may be tried, zero when there is none, and
// forgets those that may be by now.
func (d *deferred) next(now time.Time) time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	var first time.Time
	for id, until := range d.until {
		switch {
		case !now.Before(until):
			delete(d.until, id)
		case first.IsZero() || until.Before(first):
			first = until
		}
	}

	return first
}
