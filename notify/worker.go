package notify

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// plan is what a conversation needs now.
type plan struct {
	targets []string // the servers that a refresh is for, or waits for
	blocked bool     // none of them is ready
	nothing bool     // there is no need for a refresh
}

// plan decides by what the registry says now, never by what was queued.
func (r *Reconciler) plan(v conversation.View) plan {
	if v.State == conversation.StateDormant && !v.Forced {
		return plan{nothing: true}
	}
	var wanted, ready []string
	for name, s := range v.Servers {
		if s.Desired == 0 || (s.Current && !v.Forced) {
			continue
		}
		wanted = append(wanted, name)
		if r.ready(name) {
			ready = append(ready, name)
		}
	}
	switch {
	case len(wanted) == 0:
		return plan{nothing: true}
	case len(ready) == 0:
		return plan{targets: wanted, blocked: true}
	default:
		return plan{targets: ready}
	}
}

// turn is what a conversation gets when it is taken from the queue. ctx ends with
// Run; callCtx, which bounds calls and writes, a little later.
func (r *Reconciler) turn(ctx, callCtx context.Context, t taken) {
	a := &attempt{taken: t, r: r, began: time.Now()}
	defer func() {
		if p := recover(); p != nil {
			a.recovered(callCtx, p)
		}
		a.release()
		r.metrics.duration.Observe(time.Since(a.began).Seconds())
		gone, believe := r.queue.done(t)
		r.settleGone(callCtx, gone, believe)
		r.nudge()
	}()

	v, err := r.registry.Get(t.id)
	if err != nil {
		r.leave(t.id, false) // removed while it waited

		return
	}
	p := r.plan(v)
	switch {
	case v.At().Name() != t.lane.name: // it moved while it waited
		r.rescan.Store(true)
	case p.nothing: // seen to be current while it waited
		r.leave(t.id, false)
	case p.blocked:
		r.queue.block(t.id, t.lane.name, p.targets)
	case r.claims == nil:
		a.view, a.targets = v, p.targets
		a.record(callCtx, a.call(ctx, callCtx))
	default:
		a.claimed(ctx, callCtx, v)
	}
}

// leave notes that a conversation needs nothing more.
func (r *Reconciler) leave(id conversation.ID, refreshed bool) {
	for _, s := range r.progress.leave(id, refreshed, time.Now()) {
		r.log.Info("all conversations have the generation",
			"server", s.server, "generation", s.generation, "conversations", s.refreshed, "duration", s.took)
	}
}

// attempt is one refresh of one conversation: one call of the agent server's
// action, with short retries.
type attempt struct {
	taken

	r        *Reconciler
	view     conversation.View // when it began
	targets  []string          // the servers of view that it is for
	began    time.Time
	calling  bool
	released bool
	shed     bool // there was no call, since the agent server is dead
}

// call makes the agent server refresh the conversation.
func (a *attempt) call(ctx, callCtx context.Context) error {
	if failed := a.r.queue.mayCall(a.lane, a.view); failed != nil {
		a.shed = true

		return failed
	}
	a.calling = true
	a.r.metrics.inFlight.WithLabelValues(a.label).Inc()
	a.event(Event{Type: EventStarted})
	callCtx, cancel := context.WithTimeoutCause(callCtx, a.r.cfg.CallTimeout, errCallTimeout)
	defer cancel()
	callCtx, end := a.traced(callCtx)
	err := a.client.refresh(callCtx, call{id: a.id, servers: a.targets, forced: a.view.Forced, gate: func() error { return a.gate(ctx) }})
	end(ReasonOf(err))
	a.noteAnswer(err)
	a.release()

	return err
}

// noteAnswer tells the lane what the call says about its agent server.
func (a *attempt) noteAnswer(err error) {
	if err == nil {
		a.r.queue.reached(a.lane, nil, true)

		return
	}
	e := asError(err)
	switch e.Reason {
	case ReasonNetwork, ReasonTimeout:
		a.r.queue.reached(a.lane, e, false)
	case ReasonServerError, ReasonConflict, ReasonRejected, ReasonLeaseHeld, ReasonNotConnected:
		a.r.queue.reached(a.lane, nil, true)
	case ReasonSuperseded: // it may not have been asked at all
	default:
		a.r.queue.reached(a.lane, nil, false)
	}
}

// gate ends a call that has become pointless, before each of its requests.
func (a *attempt) gate(ctx context.Context) error {
	superseded := func(text string) error { return &Error{Reason: ReasonSuperseded, Err: errors.New(text)} }
	if ctx.Err() != nil {
		return &Error{Reason: ReasonSuperseded, Err: errStopped}
	}
	v, err := a.r.registry.Get(a.id)
	switch {
	case err != nil:
		return superseded("the registration ended")
	case v.At() != a.view.At():
		return &Error{Reason: ReasonSuperseded, Err: errMoved}
	case a.newer(v):
		return superseded("a newer generation is known")
	case !slices.ContainsFunc(a.targets, a.r.ready):
		return superseded("the backend is away")
	default:
		return nil
	}
}

// newer tells whether v wants a newer generation of a target than the attempt is for.
func (a *attempt) newer(v conversation.View) bool {
	return slices.ContainsFunc(a.targets, func(s string) bool {
		return v.Servers[s].Desired != a.view.Servers[s].Desired
	})
}

// release gives the lane's slot to the next one, once.
func (a *attempt) release() {
	if a.released {
		return
	}
	a.released = true
	if a.calling {
		a.calling = false
		a.r.metrics.inFlight.WithLabelValues(a.label).Dec()
	}
	a.r.queue.release(a.lane)
}

// recovered turns a panic into a failure like others, so that one conversation
// can't stop the rest.
func (a *attempt) recovered(callCtx context.Context, value any) {
	a.r.metrics.panics.WithLabelValues(component).Inc()
	// The value may hold anything, so only its type is told.
	a.r.log.Error("panic in a refresh",
		"agent_server", a.lane.name, "type", fmt.Sprintf("%T", value), "stack", string(debug.Stack()))
	if a.calling {
		a.release()
		a.record(callCtx, &Error{Reason: ReasonOther, Err: errors.New("internal error, see the log")})
	} else {
		a.r.pauseScans()
	}
}

// event sends an event about the attempt.
func (a *attempt) event(e Event) {
	e.At, e.Conversation, e.AgentServer = time.Now(), a.id, a.lane.name
	e.Attempt = a.view.Attempts + 1
	e.Generations = make(map[string]uint64, len(a.targets))
	for _, s := range a.targets {
		e.Generations[s] = a.view.Servers[s].Desired
	}
	if e.Type != EventStarted {
		e.Seconds = e.At.Sub(a.began).Seconds()
	}
	a.r.onEvent(e)
}
