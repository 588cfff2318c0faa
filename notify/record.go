package notify

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const (
	// recordTimeout bounds the writing of a record.
	recordTimeout = 10 * time.Second
	observePoll   = 10 * time.Millisecond
)

// record decides what the call achieved and writes it. It comes last: whatever
// ends the process before leaves the conversation due.
func (a *attempt) record(callCtx context.Context, err error) {
	applied := a.applied(callCtx, err)
	missing := slices.ContainsFunc(a.targets, func(s string) bool { return applied[s].Generation == 0 })
	switch {
	case !missing:
		// The tools were seen to arrive. That another of the conversation's MCP
		// servers is dead, so that the action fails, is nothing to repeat it for.
		err = nil
	case err == nil:
		err = &Error{Reason: ReasonNotObserved, Err: errors.New(
			"the agent server answered 2xx, but the conversation did not list the tools through the sidecar")}
	}
	if err != nil && (callCtx.Err() != nil || errors.Is(err, errStopped)) {
		a.r.cut.Add(1) // it stays due

		return
	}
	reason := ReasonOf(err)
	if reason == ReasonGone {
		a.r.queue.hold(a.lane, goner{attempt: a, err: asError(err)})

		return
	}
	if reason == ReasonSuperseded && len(applied) == 0 {
		a.superseded()

		return
	}

	fail := failure{}
	if err != nil && reason != ReasonSuperseded {
		fail = a.judge(asError(err))
	}
	if a.write(callCtx, applied, fail) != nil {
		return
	}
	switch {
	case reason == ReasonSuperseded:
		a.superseded()
	case err != nil:
		a.failed(fail)
	default:
		a.succeeded(applied)
	}
}

// applied returns what is known to have arrived, by server.
func (a *attempt) applied(callCtx context.Context, err error) map[string]conversation.Applied {
	if err == nil {
		a.awaitListings(callCtx)
	}
	applied := make(map[string]conversation.Applied, len(a.targets))
	for _, s := range a.targets {
		how := conversation.HowNone
		switch {
		case a.observed(s):
			how = conversation.HowObserved
		case err == nil && (!a.r.registry.Mapped(a.id, s) || a.retriedUnobserved(s)):
			how = conversation.HowAcknowledged
		}
		if how != conversation.HowNone {
			v := a.view.Servers[s]
			applied[s] = conversation.Applied{Generation: v.Desired, Hash: v.DesiredHash, How: how, At: time.Now()}
		}
	}

	return applied
}

func (a *attempt) observed(server string) bool {
	return a.r.registry.Observed(a.id, server, a.began, a.view.Servers[server].Desired)
}

// retriedUnobserved tells whether the attempt is itself the one retry that a
// conversation gets whose listing should have been seen.
func (a *attempt) retriedUnobserved(server string) bool {
	return a.view.LastError != nil && a.view.LastError.Reason == string(ReasonNotObserved) &&
		a.view.Tried[server] == a.view.Servers[server].Desired
}

// awaitListings gives the proxy a moment to report listings: the agent server may
// answer before the proxy has noted the end of the list.
func (a *attempt) awaitListings(ctx context.Context) {
	awaited := func(s string) bool { return a.r.registry.Mapped(a.id, s) && !a.observed(s) }
	if a.r.cfg.ObserveGrace == 0 || !slices.ContainsFunc(a.targets, awaited) {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, a.r.cfg.ObserveGrace)
	defer cancel()
	tick := time.NewTicker(observePoll)
	defer tick.Stop()
	for slices.ContainsFunc(a.targets, awaited) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// failure is what a failed attempt means for the next one.
type failure struct {
	err       *Error // nil is no failure
	condition conversation.Condition
	next      time.Time // zero is not until something changes
}

// judge decides when, and whether, a failed refresh is tried again.
func (a *attempt) judge(err *Error) failure {
	r, now := a.r, time.Now()
	f := failure{err: err, condition: conversation.ConditionFailed}
	switch err.Reason.known() {
	case ReasonRejected:
		return f
	case ReasonUnsupported: // the first to find out otherwise brings the others
		f.condition = conversation.ConditionUnsupported
		f.next = now.Add(jitter(min(r.cfg.ParkInterval<<min(a.view.Attempts, 10), max(r.cfg.ParkInterval, time.Hour))))
	case ReasonAllGone:
		f.condition = conversation.ConditionParked
		f.next = now.Add(jitter(r.cfg.ParkInterval))
	case ReasonNetwork, ReasonTimeout, ReasonTLS, ReasonForbiddenAddress, ReasonRedirect, ReasonIngress, ReasonConflict:
		// A page instead of a 404 is how a paused sandbox looks.
		paused := err.Reason == ReasonIngress && (err.Status == http.StatusNotFound || err.Status == http.StatusGone)
		if paused || a.view.Attempts+1 >= r.cfg.ParkAfter || a.shed {
			f.condition = conversation.ConditionParked
			f.next = now.Add(jitter(r.cfg.ParkInterval))

			break
		}
		f.next = now.Add(r.backoff(a.view.Attempts))
	case ReasonNotObserved: // there is one retry of this kind only
		f.next = now.Add(r.backoff(0))
	default:
		f.next = now.Add(r.backoff(a.view.Attempts))
	}
	if asked := now.Add(err.RetryAfter); err.RetryAfter > 0 && f.next.Before(asked) {
		f.next = asked
	}

	return f
}

// backoff returns the wait after so many failed attempts and one more.
func (r *Reconciler) backoff(attempts int) time.Duration {
	wait := r.cfg.BackoffMax
	if shift := min(attempts, 30); r.cfg.BackoffMin <= r.cfg.BackoffMax>>shift {
		wait = r.cfg.BackoffMin << shift
	}

	return jitter(wait)
}

// write puts the outcome into the registry.
func (a *attempt) write(callCtx context.Context, applied map[string]conversation.Applied, fail failure) error {
	// Also after the end of Run: the call did happen.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(callCtx), recordTimeout)
	defer cancel()
	_, err := a.r.registry.Update(ctx, a.id, func(c *conversation.Conversation) error {
		if c.At() != a.view.At() {
			return errMoved
		}
		forced, at := c.Forced, c.ForcedAt
		if len(applied) > 0 {
			c.Refreshed(a.view, applied)
		}
		if fail.err != nil {
			c.Forced, c.ForcedAt = forced, at // it is still to be done
			c.RefreshFailed(a.view, fail.condition, conversation.Failure{
				Reason: string(fail.err.Reason.known()), Message: fail.err.Error(), At: time.Now(),
			}, fail.next)
		}

		return nil
	})
	switch {
	case errors.Is(err, conversation.ErrNotFound), errors.Is(err, errMoved):
		a.superseded() // the registration ended, or is for another agent server now
	case err != nil:
		a.r.log.Warn("recording a refresh; it will be repeated", "conversation", a.id, "err", err)
		a.r.pauseScans()
	}

	return err
}

// errMoved says that what an agent server answered is about a conversation that
// is at another one now.
var errMoved = errors.New("the conversation moved to another agent server")

// pauseScans keeps what could not be recorded from being repeated at once.
func (r *Reconciler) pauseScans() {
	t := time.Now().Add(r.cfg.BackoffMin)
	r.pause.Store(&t)
	r.rescan.Store(true)
}

func (a *attempt) superseded() {
	a.r.metrics.refreshes.WithLabelValues(a.label, string(ResultSuperseded)).Inc()
	a.event(Event{Type: EventSuperseded, Reason: ReasonSuperseded})
	a.r.rescan.Store(true)
}

func (a *attempt) failed(f failure) {
	reason, text := f.err.Reason.known(), f.err.Error()
	if f.condition != conversation.ConditionFailed || reason == ReasonNetwork || reason == ReasonTimeout {
		a.r.queue.awaitReturn(a.lane, a.id)
	}
	a.r.rescan.Store(true)
	if f.condition == conversation.ConditionUnsupported {
		a.r.leave(a.id, false)
		if a.view.Condition == f.condition && !a.untried() {
			return // it was only asked whether that is still so
		}
	}
	a.r.metrics.refreshes.WithLabelValues(a.label, string(ResultFailed)).Inc()
	a.r.metrics.failed.WithLabelValues(a.label, string(reason)).Inc()
	log := a.r.log.Debug
	if last := a.view.LastError; (last == nil || last.Message != text) && a.r.queue.warns(a.lane, text) {
		log = a.r.log.Warn
	}
	log("refresh failed", "agent_server", a.lane.name, "conversation", a.id, "reason", string(reason), "err", text,
		"attempt", a.view.Attempts+1, "next_attempt", f.next)
	a.event(Event{Type: EventFailed, Reason: reason, Message: text, NextAttempt: f.next})
}

// untried tells whether the attempt is the first one for a target's generation.
func (a *attempt) untried() bool {
	return slices.ContainsFunc(a.targets, func(s string) bool { return a.view.Tried[s] != a.view.Servers[s].Desired })
}

func (a *attempt) succeeded(applied map[string]conversation.Applied) {
	now := time.Now()
	if v, err := a.r.registry.Get(a.id); err == nil {
		if a.newer(v) {
			a.superseded() // true, and not enough

			return
		}
		// A refresh that was asked for, or a session that was lost, during the call
		// was not to be seen in the queue, where the conversation was already.
		if !a.r.plan(v).nothing {
			a.r.rescan.Store(true)
		}
	}
	how := conversation.HowObserved
	for _, ap := range applied {
		if ap.How == conversation.HowAcknowledged {
			how = conversation.HowAcknowledged
		}
	}
	a.r.metrics.refreshes.WithLabelValues(a.label, string(ResultSuccess)).Inc()
	a.r.metrics.applied.WithLabelValues(a.label, string(how)).Inc()
	a.r.metrics.lastSuccess.WithLabelValues(a.label).Set(float64(now.UnixNano()) / 1e9)
	// How long an agent server was away, or a sandbox paused, says nothing about refreshes.
	if !a.view.StaleSince.IsZero() && a.view.Condition != conversation.ConditionParked {
		a.r.metrics.convergence.WithLabelValues(a.label).Observe(max(now.Sub(a.view.StaleSince).Seconds(), 0))
	}
	log := a.r.log.Debug
	if a.view.Attempts > 0 {
		log = a.r.log.Info
	}
	log("conversation refreshed", "agent_server", a.lane.name, "conversation", a.id, "how", string(how),
		"attempt", a.view.Attempts+1, "duration", now.Sub(a.began))
	a.event(Event{Type: EventSucceeded, How: how})
	a.r.leave(a.id, true)
}

// goner is a conversation of which the agent server said that it is gone.
type goner struct {
	attempt *attempt
	err     *Error
}

// settleGone decides about conversations that are said to be gone. If that goes
// for every conversation of the agent server at once, it is rather the agent
// server that is wrong, and all are kept.
func (r *Reconciler) settleGone(callCtx context.Context, gone []goner, believe bool) {
	for _, g := range gone {
		a := g.attempt
		doubted := a.view.LastError != nil && a.view.LastError.Reason == string(ReasonAllGone)
		if believe || (len(gone) == 1 && !doubted) {
			a.remove(callCtx)
		} else {
			f := a.judge(&Error{Reason: ReasonAllGone, Status: g.err.Status, Err: errors.New(
				"the agent server has none of the conversations that were to be refreshed; their registrations are kept")})
			if a.write(callCtx, nil, f) == nil {
				a.failed(f)
			}
		}
		r.queue.forget(a.id)
	}
}

// remove ends the registration of a conversation that is gone.
func (a *attempt) remove(callCtx context.Context) {
	if v, err := a.r.registry.Get(a.id); err == nil && v.At() != a.view.At() {
		a.superseded()

		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(callCtx), recordTimeout)
	defer cancel()
	if err := a.r.registry.Remove(ctx, a.id); err != nil && !errors.Is(err, conversation.ErrNotFound) {
		a.r.log.Warn("removing a conversation that is gone", "conversation", a.id, "err", err)
		a.r.pauseScans()

		return
	}
	a.r.metrics.refreshes.WithLabelValues(a.label, string(ResultGone)).Inc()
	a.r.log.Info("conversation is gone, its registration was removed", "agent_server", a.lane.name, "conversation", a.id)
	a.event(Event{Type: EventGone, Reason: ReasonGone})
	a.r.leave(a.id, false)
}
