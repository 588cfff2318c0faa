package proxy

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// Bounds on trying again.
const (
	maxRepeats = 2 // of a request that the backend may have begun with: it may be what kills it
	maxRenews  = 3 // of a session for one request: the backend may have several minds
	maxOdd     = 3 // tries that a backend that is said to be there answered with nonsense
)

func methodLabel(e *envelope) string {
	m := &e.messages[0]

	switch {
	case e.batch:
		return methodBatch
	case m.kind == kindResponse:
		return metrics.OtherMethod
	default:
		return metrics.Method(m.method)
	}
}

// run brings the request to the backend, as often as that is needed and allowed.
func (x *exchange) run(ctx context.Context, try func(context.Context) step) {
	for {
		if x.discovers && x.recall() {
			return
		}

		if err := x.await(ctx, x.needs()); err != nil {
			x.notLetThrough(ctx, err)
			return
		}

		if try(ctx) == done {
			return
		}
	}
}

func (x *exchange) needs() need {
	// Whether a tool is still the same is known when the new list is.
	if x.lists && !x.unsettled || x.calls && x.repeats > 0 {
		return needSettled
	}

	return needAnswer
}

// try sends the request once.
func (x *exchange) try(ctx context.Context) step {
	if x.hold.attempts > 0 {
		x.forward = maps.Clone(x.forward) // the try before may still be reading it
	}

	o := outgoing{method: http.MethodPost, header: x.forward, own: true, query: x.r.URL.RawQuery, body: x.body}

	var t target

	if x.sess != nil {
		t = x.sess.target()

		switch {
		case t.ended:
			return x.sessionEnded()
		case x.late():
			x.accept()
			return done
		case t.lost:
			return x.renew(ctx, t)
		}

		o.session = t.backend
	}

	switch {
	case x.calls && x.repeats == 0:
		x.rememberHints()
	case x.calls && (x.unsettled || !x.mayRepeat(true)):
		return x.fail(interruptedFailure(ReasonInterrupted, true))
	}

	x.hold.attempts++
	x.began, x.beganAt = x.srv.gate.look(), time.Now()

	if x.lists && x.sess != nil {
		x.sess.listing(1)
		defer x.sess.listing(-1)
	} else if x.lists {
		defer x.listing()()
	}

	resp, trace, err := x.srv.send(ctx, o)
	if err != nil {
		return x.failed(ctx, err, trace)
	}

	if x.alone {
		x.srv.gate.answered()
	}

	// Reading may stop anywhere: the connection must not be used again then.
	defer func() { _ = resp.Body.Close() }()

	return x.judge(ctx, resp, t)
}

// failed decides after a try without an answer.
func (x *exchange) failed(ctx context.Context, err error, trace Trace) step {
	if ctx.Err() != nil {
		return x.clientLeft()
	}

	if errors.Is(err, errRedirect) {
		x.srv.logger.Warn("the backend redirects in a way that is not followed, point upstream at its final address", "err", err)
		return x.fail(interruptedFailure(ReasonBackend, false))
	}

	if failure(err, trace) == notSent {
		x.srv.logger.Debug("the backend was not reached", "method", x.label, "err", err)
		x.srv.suspect("refused")

		return again
	}

	return x.interrupted("reset")
}

// interrupted decides after the backend was lost while it had the request.
func (x *exchange) interrupted(how string) step {
	x.srv.logger.Debug("the backend was lost during a request", "method", x.label, "reason", how)
	x.srv.suspect(how)

	return x.repeat(ReasonInterrupted)
}

// repeat sends the request again if it may have run without harm, and fails it
// otherwise.
func (x *exchange) repeat(why Reason) step {
	switch {
	case x.requests > 0:
	case x.saysInitialized() && x.repeats < maxRepeats:
		x.repeats++ // without it the backend may refuse all that follows, and twice does no harm

		return again
	default:
		x.accept() // nobody waits for an answer, and it may have arrived
		return done
	}

	if x.sent || x.repeats >= maxRepeats || !x.mayRepeat(false) {
		x.srv.metrics.replay(replayRefused)
		return x.fail(interruptedFailure(why, !x.onlyReads()))
	}

	x.repeats++
	x.srv.metrics.replay(replaySent)

	return again
}

// saysInitialized reports whether the client says that it is initialised.
func (x *exchange) saysInitialized() bool {
	return !x.env.batch && x.env.messages[0].method == methodInitialized
}

// renew re-creates the session that the backend lost, and decides what becomes of
// the request.
func (x *exchange) renew(ctx context.Context, t target) step {
	x.srv.doubt("unknown_session")

	if !x.sess.owns(x.forward) {
		return x.sessionEnded()
	}

	if x.renews++; x.renews > maxRenews {
		return x.fail(awayFailure(ReasonNotReady))
	}

	held, release := x.cancellable(ctx)
	err := x.sess.renew(held, t.renewals, ownHeader(x.forward))

	release()

	var denied *deniedError

	switch {
	case x.left(ctx):
		return x.clientLeft()
	case err == nil:
		if x.goneWithSession() {
			x.accept()
			return done
		}

		return again
	case errors.Is(err, errSessionEnded):
		return x.sessionEnded()
	case errors.As(err, &denied):
		return x.deny(denied)
	default: // not ready: the gate is closed
		x.renews--
		return again
	}
}

// goneWithSession reports whether the message only meant something to the session
// that was lost, or was said for the client when it was re-created.
func (x *exchange) goneWithSession() bool {
	for i := range x.env.messages {
		m := &x.env.messages[i]

		switch {
		case m.kind == kindResponse, m.method == methodInitialized, m.method == methodCancelled, m.method == methodProgress:
		default:
			return false
		}
	}

	return true
}

// sessionEnded tells the client to begin anew.
func (x *exchange) sessionEnded() step {
	x.outcome = outcomeClientError

	if x.out.begun {
		x.each(func(id []byte) []byte { return errorBody(id, codeNoSession, "Session not found", nil) })
		return done
	}

	x.out.first()
	refuseSession(x.out.w, x.env.messages[0].id)

	return done
}

// deny passes on that the backend doesn't take the client's credentials.
func (x *exchange) deny(d *deniedError) step {
	x.outcome = outcomeClientError

	if x.out.begun {
		return x.fail(interruptedFailure(ReasonBackend, false))
	}

	responseHeader(x.out.w.Header(), d.header)
	_ = x.out.message(d.status, d.body)

	return done
}

// notLetThrough answers a request that was held in vain.
func (x *exchange) notLetThrough(ctx context.Context, err error) {
	if x.left(ctx) || errors.Is(err, errStreamGone) {
		x.clientLeft()
		return
	}

	if x.requests == 0 {
		// Clients take an HTTP error for the end of everything, and a message
		// that wants no answer is not worth that.
		x.accept()
		x.outcome = outcomeUnavailable

		return
	}

	if x.repeats > 0 && !x.onlyReads() {
		x.fail(interruptedFailure(ReasonInterrupted, true))
		return
	}

	x.fail(heldFailure(err))
}

// clientLeft ends a request whose client left or cancelled it.
func (x *exchange) clientLeft() step {
	x.outcome = outcomeClosed

	if x.cancelled {
		x.out.empty(http.StatusAccepted) // a cancelled request gets no response
	}

	return done
}

// fail answers every request that has no answer yet with an error of the
// sidecar's own.
func (x *exchange) fail(f *rpcFailure) step {
	x.outcome = f.outcome
	x.each(f.body)

	return done
}

// each answers every request that has no answer yet.
func (x *exchange) each(body func(id []byte) []byte) {
	var bodies [][]byte

	for i := range x.env.messages {
		m := &x.env.messages[i]
		if m.kind == kindRequest && !x.isAnswered(m.id) {
			bodies = append(bodies, body(m.id))
		}
	}

	switch {
	case len(bodies) == 0:
		x.out.empty(http.StatusAccepted)
	case x.out.stream:
		for _, b := range bodies {
			_ = x.out.message(http.StatusOK, b)
		}
	case x.out.begun:
		x.out.abort()
	case x.env.batch:
		_ = x.out.message(http.StatusOK, joinBatch(bodies))
	default:
		_ = x.out.message(http.StatusOK, bodies[0])
	}
}

func joinBatch(bodies [][]byte) []byte {
	all := []byte{'['}

	for i, b := range bodies {
		if i > 0 {
			all = append(all, ',')
		}

		all = append(all, b...)
	}

	return append(all, ']')
}

// onlyReads reports whether none of the requests has an effect.
func (x *exchange) onlyReads() bool {
	for i := range x.env.messages {
		if m := &x.env.messages[i]; m.kind == kindRequest && !reads(m.method) {
			return false
		}
	}

	return true
}
