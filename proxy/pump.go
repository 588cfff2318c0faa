package proxy

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// Times between tries to open the backend's stream.
const (
	reopenLeast = 50 * time.Millisecond
	reopenMost  = 10 * time.Second
	// reopenFresh is how long a stream must have lived to count as one that
	// worked.
	reopenFresh = 5 * time.Second
)

// listener serves one client stream, and reads the backend's stream for its
// session while no other client stream of the session does. There is one
// goroutine for both: the one of the client's request.
type listener struct {
	sess    *session
	srv     *server
	c       *clientStream
	forward http.Header
	query   string
	from    string // event id to go on from, once
	fails   int    // tries in a row that came to nothing
	retry   time.Duration
	alone   bool // the backend has no stream for this session
	process uint64
	result  outcome
}

// errNoStream ends a listener whose client has been answered otherwise.
var errNoStream = errors.New("there is no stream")

// serve runs until the client leaves or the session ends.
func (l *listener) serve(ctx context.Context, from string) outcome {
	l.result = outcomeOK

	if l.admit(ctx) != nil {
		return l.result
	}

	if from != "" {
		switch kind, ok := l.sess.resumable(from); {
		case !ok:
			l.giveUp(l.sess.abandoned(from))
		case kind == eventOfListen:
			l.from = from
			l.sess.unbind() // the stream that the client lost is to be opened anew
		case l.resume(ctx, from):
			return l.result
		}
	}

	if err := l.takeOver(ctx); err != nil {
		return l.result
	}
	defer func() { <-l.sess.pump }()

	for ctx.Err() == nil {
		if l.once(ctx) != nil {
			break
		}
	}

	return l.result
}

// admit lets the session's principal in, and whom the backend takes for it: tokens
// rotate.
func (l *listener) admit(ctx context.Context) error {
	if l.sess.owns(l.forward) {
		return nil
	}

	v, t := l.srv.gate.look(), l.sess.target()
	if v.away || t.lost {
		return l.refuse()
	}

	switch a, how, err := l.sess.ping(ctx, t, ownHeader(l.forward)); {
	case err != nil || how != lossNone:
		return l.refuse()
	case a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden:
		return l.deny(&deniedError{a.StatusCode, a.Header, a.head})
	case a.StatusCode >= http.StatusBadRequest:
		return l.refuse()
	}

	l.sess.accepted(ctx, l.forward, v.process, true)

	if !l.sess.owns(l.forward) {
		return l.refuse() // no credentials are never newer ones
	}

	return nil
}

// takeOver waits until no other stream of the session reads the backend's.
func (l *listener) takeOver(ctx context.Context) error {
	select {
	case l.sess.pump <- struct{}{}:
		return nil
	default:
	}

	if l.c.begin() != nil {
		return errStreamOver
	}

	select {
	case l.sess.pump <- struct{}{}:
		return nil
	case <-ctx.Done():
		return errStreamOver
	}
}

// giveUp tells the client that answers which it polls for won't come.
func (l *listener) giveUp(ids [][]byte) {
	for _, id := range ids {
		_ = l.c.write(appendEvent(nil, "", "", interruptedFailure(ReasonInterrupted, true).body(id)))
	}
}

// once opens the backend's stream and reads it to its end, or waits until that can
// be tried. An error ends the client's stream.
func (l *listener) once(ctx context.Context) error {
	// Whoever finds that the process or the backend's session is another one ends
	// the wait or the reading. That must be possible before anything is looked at.
	bound, unbind := context.WithCancel(ctx)
	defer unbind()

	l.sess.bind(unbind)
	defer l.sess.bind(nil)

	v := l.srv.gate.look()
	if l.process != v.process {
		l.process, l.alone = v.process, false
	}

	if v.away {
		if err := l.wait(bound, v.changed, l.srv.gate.patience()); err != nil || bound.Err() != nil {
			return err
		}

		// Without a verdict the backend is tried all the same.
		now := l.srv.gate.look()
		if now.away && (!now.untold || now.verdicts != v.verdicts) {
			return nil
		}

		v = now
	}

	switch {
	case l.alone || l.srv.servesItself(v.process):
		return l.wait(bound, nil, never)
	case l.fails > 0:
		if err := l.wait(bound, nil, l.backoff()); err != nil || bound.Err() != nil {
			return err
		}
	}

	l.fails++

	err := l.open(ctx, bound, v)
	if bound.Err() != nil {
		l.fails = 0 // it didn't fail, it was ended
	}

	return err
}

// wait keeps the client's stream open until something happens.
func (l *listener) wait(ctx context.Context, changed <-chan struct{}, most time.Duration) error {
	if err := l.c.begin(); err != nil {
		return err
	}

	timer := time.NewTimer(most)
	defer timer.Stop()

	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}

	return nil
}

func (l *listener) backoff() time.Duration {
	d := max(min(reopenLeast<<min(l.fails-1, 12), reopenMost), min(l.retry, reopenMost))

	return d/2 + rand.N(d) //nolint:gosec // it only spreads the load
}

// open opens the backend's stream.
func (l *listener) open(ctx, bound context.Context, v *view) error {
	// After a swap every listening session comes here at once. A client that is
	// only just opening its stream doesn't wait for them.
	if l.c.isOpen() {
		select {
		case l.srv.reopen <- struct{}{}:
		case <-bound.Done():
			return nil
		}

		release := sync.OnceFunc(func() { <-l.srv.reopen })
		defer release()

		return l.get(ctx, bound, v, release)
	}

	return l.get(ctx, bound, v, func() {})
}

func (l *listener) get(ctx, bound context.Context, v *view, opened func()) error {
	t := l.sess.target()

	switch {
	case t.ended:
		return l.refuse()
	case t.lost:
		return l.renew(ctx, t)
	}

	l.forward = l.sess.refreshed(l.forward)

	if !l.sess.confirmedIn(v.process) {
		switch a, how, err := l.sess.ping(bound, t, ownHeader(l.forward)); {
		case err != nil:
			return l.unreached(ctx, bound)
		case how != lossNone:
			return l.renew(ctx, t)
		case a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden:
			return l.deny(&deniedError{a.StatusCode, a.Header, a.head})
		case a.StatusCode < http.StatusBadRequest:
			l.sess.accepted(ctx, l.forward, v.process, false)
		}
	}

	o := outgoing{method: http.MethodGet, header: l.forward, session: t.backend, query: l.query, accept: typeEventStream}

	if l.from != "" {
		o.header = l.forward.Clone()
		o.header.Set(headerLastEvent, l.from)
		l.from = ""
	}

	resp, _, err := l.srv.send(bound, o)
	if err != nil {
		return l.unreached(ctx, bound)
	}

	if v.away {
		l.srv.gate.answered()
	}

	defer func() { _ = resp.Body.Close() }()

	a := newAnswer(resp)

	if a.StatusCode == http.StatusOK && a.kind == typeEventStream && a.plain {
		opened()
		l.sess.accepted(ctx, l.forward, v.process, true)

		return l.read(ctx, bound, a)
	}

	return l.noStream(ctx, a, t)
}

// unreached decides after a try that brought no answer.
func (l *listener) unreached(ctx, bound context.Context) error {
	if ctx.Err() == nil && bound.Err() == nil {
		l.srv.suspect("refused")
	}

	return nil
}

// noStream decides after an answer that is no stream.
func (l *listener) noStream(ctx context.Context, a *answer, t target) error {
	_ = a.read(maxPeek)
	rpc, isRPC := a.rpc()

	switch how := lossOf(a, rpc, isRPC); {
	case how == lossCertain, how == lossPossible && l.sess.confirmLoss(ctx, a, t, ownHeader(l.forward)):
		return l.renew(ctx, t)
	}

	switch s := a.StatusCode; {
	case s == http.StatusUnauthorized || s == http.StatusForbidden:
		return l.deny(&deniedError{s, a.Header, a.head})
	case s == http.StatusMethodNotAllowed || s < http.StatusMultipleChoices:
		l.srv.serveItself(l.process)
	case s == http.StatusConflict || s == http.StatusTooManyRequests || s >= http.StatusInternalServerError:
		// It may not have noticed yet that the stream before has ended.
	default:
		l.alone = true
	}

	return l.c.begin()
}

// renew re-creates the session on the client's behalf.
func (l *listener) renew(ctx context.Context, t target) error {
	l.srv.doubt("unknown_session")

	if !l.sess.owns(l.forward) {
		return l.refuse()
	}

	err := l.sess.renew(ctx, t.renewals, ownHeader(l.forward))

	var denied *deniedError

	switch {
	case errors.Is(err, errSessionEnded):
		return l.refuse()
	case errors.As(err, &denied):
		return l.deny(denied)
	default: // it worked, or it is to be tried again
		return nil
	}
}

// refuse ends a stream whose session is over; where possible the client is told.
func (l *listener) refuse() error {
	l.result = outcomeClientError

	if !l.c.isOpen() {
		l.c.close()
		refuseSession(l.c.w, nil)
	}

	return errNoStream
}

// deny ends a stream whose credentials the backend doesn't take any more. A client
// that has its stream learns why when it opens the next.
func (l *listener) deny(d *deniedError) error {
	l.result = outcomeClientError

	if !l.c.isOpen() {
		l.c.close()
		responseHeader(l.c.w.Header(), d.header)
		l.c.w.WriteHeader(d.status)
		_, _ = l.c.w.Write(d.body)
	}

	return errNoStream
}

// read passes on the events of the backend's stream.
func (l *listener) read(ctx, bound context.Context, a *answer) error {
	if err := l.c.begin(); err != nil {
		return err
	}

	start := time.Now()
	at := l.srv.gate.look()
	events := newEventReader(a.Body, maxEvent)

	for {
		ev, err := events.Next()
		if err != nil {
			if time.Since(start) > reopenFresh {
				l.fails = 0
			}

			if ctx.Err() == nil && bound.Err() == nil {
				l.srv.logger.Debug("the backend's stream of a session ended", "err", err)

				if !errors.Is(err, io.EOF) {
					l.srv.gate.broke()
				}

				l.srv.ask("stream_ended")
			}

			return nil
		}

		l.pass(&ev, at)
	}
}

// pass passes on one event.
func (l *listener) pass(ev *event, at *view) {
	if ev.hasRetry {
		l.retry = ev.retry
	}

	if ev.hasID {
		l.sess.noteEvent(ev.id, eventOfListen, at)
	}

	if e, err := readEnvelope(ev.data); len(ev.data) > 0 && err == nil {
		l.fails = 0

		for i := range e.messages {
			switch m := &e.messages[i]; {
			case m.kind == kindRequest:
				l.sess.asked(m.id, at)
			case m.method == methodListChanged && !e.batch && l.sess.takeNotice():
				return
			}
		}
	}

	l.sess.deliver(ev.raw)
}
