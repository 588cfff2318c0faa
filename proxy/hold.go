package proxy

import (
	"context"
	"errors"
	"time"
)

const (
	// tryAlone is how long the proxy waits for a verdict on what its own traffic
	// showed before requests try the backend by themselves.
	tryAlone = 2 * time.Second
	// tryUnwatched is the same where nobody is there to give one.
	tryUnwatched = 200 * time.Millisecond

	// Requests that are tried again and again pause longer and longer.
	pauseLeast = 25 * time.Millisecond
	pauseMost  = time.Second
)

var (
	errHoldOver   = errors.New("the backend did not come back in time")
	errHoldFull   = errors.New("too many requests wait already")
	errStopping   = errors.New("the sidecar holds no requests any more")
	errCancelled  = errors.New("the client cancelled the request")
	errStreamGone = errors.New("the client's stream ended")
)

// holding is what a request may use up while it waits for the backend.
type holding struct {
	budget   time.Duration // waiting time that is left
	attempts int           // tries so far
	bytes    int64         // that are kept while it waits
}

// await returns when the request may go to the backend: at once, or after it was
// held. A request that is kept for long gets a sign of life.
func (x *exchange) await(ctx context.Context, n need) error {
	pause := x.pause()

	if v := x.srv.gate.look(); pause == 0 && v.passes(n) {
		return nil
	}

	return x.keep(ctx, func(ctx context.Context) error { return x.wait(ctx, n, pause) })
}

// keep holds the request while wait waits, and takes the time from its budget.
func (x *exchange) keep(ctx context.Context, wait func(context.Context) error) error {
	g := x.srv.gate

	if g.look().quiet {
		return errStopping
	}

	if !g.enter(x.hold.bytes, x.cfg.MaxHeld, x.cfg.MaxHeldBytes) {
		return errHoldFull
	}
	defer g.leave(x.hold.bytes)

	x.srv.metrics.held.Inc()
	defer x.srv.metrics.held.Dec()

	held, release := x.cancellable(ctx)
	start := time.Now()
	err := wait(held)

	release()

	if x.cancelled {
		err = errCancelled
	}

	waited := time.Since(start)

	x.srv.metrics.holdTime.Observe(waited.Seconds())

	x.hold.budget -= waited
	x.waited += waited

	return err
}

// pause is how long a request that was tried before waits at least.
func (x *exchange) pause() time.Duration {
	if x.hold.attempts < 2 {
		return 0
	}

	return min(pauseLeast<<min(x.hold.attempts-2, 10), pauseMost)
}

func (x *exchange) wait(ctx context.Context, n need, pause time.Duration) error {
	g := x.srv.gate
	over := time.NewTimer(x.hold.budget)
	comment := time.NewTimer(x.commentAfter())
	ready := time.NewTimer(pause)
	alone := time.NewTimer(g.patience())

	defer over.Stop()
	defer comment.Stop()
	defer ready.Stop()
	defer alone.Stop()

	paused, verdicts := pause > 0, g.look().verdicts
	x.alone = false

	for {
		v := g.look()

		switch {
		case v.quiet:
			return errStopping
		case !paused && v.passes(n):
			return nil
		}

		select {
		case <-v.changed:
		case <-ready.C:
			paused = false
		case <-alone.C:
			if v := g.look(); !paused && v.untold && v.verdicts == verdicts {
				x.alone = true
				x.unsettled = n == needSettled

				return nil
			}
		case <-comment.C:
			if err := x.signOfLife(ctx); err != nil {
				return errStreamGone
			}

			comment.Reset(x.cfg.KeepAlive)
		case <-over.C:
			// A list that hasn't settled is better than none. The client is
			// told when it has.
			if v := g.look(); n == needSettled && v.passes(needAnswer) {
				x.unsettled = true
				return nil
			}

			return errHoldOver
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// never is longer than anything is waited for.
const never = 365 * 24 * time.Hour

// commentAfter is when a held request gets its first comment line.
func (x *exchange) commentAfter() time.Duration {
	if !x.acceptsStream {
		return never
	}

	// However often it is tried meanwhile.
	if x.out.stream {
		return max(0, x.cfg.KeepAlive-time.Since(x.out.commented))
	}

	return max(0, x.cfg.HeldComment-time.Since(x.start))
}

// signOfLife keeps a client, and what is between, from giving up.
func (x *exchange) signOfLife(ctx context.Context) error {
	if x.init && !x.out.begun {
		x.establishEarly(ctx) // the header names the session
	}

	return x.out.comment("waiting for the MCP server")
}

// cancellable lets notifications/cancelled end the request while it is held: the
// context that it returns ends then. Whether it did is known after release.
func (x *exchange) cancellable(ctx context.Context) (held context.Context, release func()) {
	held, cancel := context.WithCancelCause(ctx)
	if x.sess == nil {
		return held, func() { cancel(nil) }
	}

	s := x.sess
	keys := x.requestKeys()

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.held == nil {
		s.held = make(map[string]context.CancelCauseFunc, len(keys))
	}

	for _, k := range keys {
		s.held[k] = cancel
	}

	return held, func() {
		s.mu.Lock()
		defer s.mu.Unlock()

		for _, k := range keys {
			delete(s.held, k)
		}

		x.cancelled = x.cancelled || errors.Is(context.Cause(held), errCancelled)

		cancel(nil)
	}
}

// left reports whether the client has left, or has cancelled the request while it
// was held.
func (x *exchange) left(ctx context.Context) bool { return x.cancelled || ctx.Err() != nil }

// cancelHeld ends a held request and reports whether there was one.
func (s *session) cancelHeld(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	cancel := s.held[idKey(id)]
	if cancel == nil {
		return false
	}

	cancel(errCancelled)

	return true
}

// patience is how long to wait for a verdict before trying alone.
func (g *gate) patience() time.Duration {
	if g.watched {
		return tryAlone
	}

	return tryUnwatched
}

// heldFailure is what a request gets that was not let through.
func heldFailure(err error) *rpcFailure {
	switch {
	case errors.Is(err, errHoldFull):
		return tooManyFailure()
	case errors.Is(err, errStopping):
		return awayFailure(ReasonStopping)
	default:
		return awayFailure(ReasonAway)
	}
}
