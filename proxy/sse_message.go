package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync/atomic"
	"time"
)

// sseMessage is what a client posted in one go. The exchange in it has no answer
// of its own to write to: responses go to the client's stream, and only the first
// look at it, before post, may use the client's request.
//
// A message that can't be sent at once is held, and its POST gets 202 for it: the
// sidecar has accepted it. Whatever fails after that is told on the stream, by an
// error with the id of the request.
type sseMessage struct {
	*exchange

	told  atomic.Bool
	reply chan *answer // what to answer the POST with, nil for 202; gets one

	born      life          // of the session when the message came
	announces bool          // it is notifications/initialized
	complete  chan struct{} // closed when every request has its response

	// Guarded by the lock of the link that the message went to.
	pending int  // requests without a response
	dialog  bool // something that belongs to it, or may, has gone to the client
}

// tell says how to answer the client's POST: like the backend, or with 202 when a
// is nil. Only the first call counts; it reports whether it was the first.
func (m *sseMessage) tell(a *answer) bool {
	first := m.told.CompareAndSwap(false, true)
	if first {
		m.reply <- a
	}

	return first
}

func (m *sseMessage) writeReply(w http.ResponseWriter, a *answer) {
	if a == nil {
		w.WriteHeader(http.StatusAccepted)
		return
	}

	responseHeader(w.Header(), a.Header)
	w.WriteHeader(a.StatusCode)
	_, _ = w.Write(a.head)
}

// ended counts the message.
func (m *sseMessage) ended() {
	m.srv.metrics.inFlight.Dec()
	m.srv.metrics.ended(m.label, m.outcome)
}

// post takes a message over. It returns false when the session is over.
func (s *sseSession) post(ctx context.Context, m *sseMessage) bool {
	m.sess, m.born, m.pending = s.sess, s.life(), m.requests

	if m.to.conv == "" {
		m.to.conv = s.sess.conv
	}

	if m.lists {
		m.hold.budget = s.sess.takeBudget(m.hold.budget)
	}

	for i := range m.env.messages {
		switch e := &m.env.messages[i]; {
		case e.kind == kindResponse:
			m.answers = append(m.answers, s.answerTo(e))
		case e.method == methodCancelled && e.cancelledID != nil:
			s.cancel(e.cancelledID)
		case e.method == methodInitialized:
			m.announces = true
		}
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.tasks.start(ctx, never, func(ctx context.Context) { s.run(ctx, m) }) {
		return false
	}

	s.running++

	if m.announces {
		s.said, s.first = true, m
	}

	return true
}

// answerTo returns the life of the backend's session that sent the request which
// the client answers.
func (s *sseSession) answerTo(m *message) life {
	now := s.life()

	s.sess.mu.Lock()
	defer s.sess.mu.Unlock()

	return s.sess.fence.answer(m.id, now)
}

// cancel ends what the client cancelled, wherever it is.
func (s *sseSession) cancel(id []byte) {
	if s.sess.cancelHeld(id) {
		return
	}

	if l, _ := s.current(); l != nil {
		l.cancel(id)
	}
}

// run brings a message to the backend and sees to it that its requests are
// answered.
func (s *sseSession) run(ctx context.Context, m *sseMessage) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.cancel = cancel

	defer cancel(nil)
	defer s.ran()
	defer m.ended()
	defer m.tell(nil)
	defer s.letOthers(m)

	for {
		l, err := s.await(ctx, m)
		if err != nil {
			s.notLetThrough(ctx, m, err)
			return
		}

		if s.try(ctx, m, l) == done {
			return
		}
	}
}

// letOthers lets the messages through that waited for this one.
func (s *sseSession) letOthers(m *sseMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.first == m {
		s.first = nil
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

// way is the stream of the backend that m may go to now, or nil and what to wait
// for.
func (s *sseSession) way(m *sseMessage) (*sseLink, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.first != nil && s.first != m {
		return nil, s.changed
	}

	return s.link, s.changed
}

// await returns when the message may go to the backend.
func (s *sseSession) await(ctx context.Context, m *sseMessage) (*sseLink, error) {
	for {
		v := s.srv.gate.look()
		l, _ := s.way(m)

		if l == nil || m.pause() > 0 || !v.passes(m.needs()) {
			m.tell(nil)
		}

		if err := m.await(ctx, m.needs()); err != nil {
			return nil, err
		}

		if l, _ := s.way(m); l != nil {
			return l, nil
		}

		if err := m.keep(func() error { return s.awaitLink(ctx, m) }); err != nil {
			return nil, err
		}
	}
}

// awaitLink waits for the backend's session to be there.
func (s *sseSession) awaitLink(ctx context.Context, m *sseMessage) error {
	over := time.NewTimer(m.hold.budget)
	defer over.Stop()

	for {
		v := s.srv.gate.look()

		l, changed := s.way(m)

		switch {
		case v.quiet:
			return errStopping
		case l != nil:
			return nil
		}

		select {
		case <-changed:
		case <-v.changed:
		case <-over.C:
			return errHoldOver
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// try sends the message once and waits for the responses.
func (s *sseSession) try(ctx context.Context, m *sseMessage, l *sseLink) step {
	switch {
	case s.outdated(m, l):
		m.outcome = outcomeOK
		return done
	case m.calls && m.repeats == 0:
		m.rememberHints()
	case m.calls && (m.unsettled || !m.mayRepeat(true)):
		return s.fail(m, interruptedFailure(ReasonInterrupted, true))
	}

	m.hold.attempts++
	m.began, m.beganAt = s.srv.gate.look(), time.Now()

	// The response may be there before the POST is answered.
	switch err := l.expect(m); {
	case errors.Is(err, errHoldFull):
		return s.fail(m, tooManyFailure())
	case err != nil:
		return again
	}

	if m.lists {
		s.sess.listing(1)
		defer s.sess.listing(-1)
	}

	resp, trace, err := s.srv.send(ctx, outgoing{method: http.MethodPost, header: m.forward, url: l.messages(), body: m.body})
	if err != nil {
		return s.failed(ctx, m, l, err, trace)
	}

	defer func() { _ = resp.Body.Close() }()

	if m.alone {
		s.srv.gate.answered()
	}

	return s.judge(ctx, m, l, newAnswer(resp))
}

// outdated reports whether the message only means something to a session of the
// backend that is gone, or was said to the present one already.
func (s *sseSession) outdated(m *sseMessage, l *sseLink) bool {
	now := s.life()

	switch {
	case m.announces:
		return l.wasToldInitialized()
	case len(m.answers) == len(m.env.messages):
		return !slices.Contains(m.answers, now)
	default:
		return m.born != now && m.goneWithSession()
	}
}

// failed decides after a POST without an answer.
func (s *sseSession) failed(ctx context.Context, m *sseMessage, l *sseLink, err error, trace Trace) step {
	if ctx.Err() != nil {
		return s.left(ctx, m, l)
	}

	if errors.Is(err, errRedirect) {
		s.srv.logger.Warn("the backend redirects in a way that is not followed", "err", err)
		return s.unlessComplete(m, l, func() step { return s.fail(m, interruptedFailure(ReasonBackend, false)) })
	}

	m.tell(nil)

	if failure(err, trace) == notSent {
		s.srv.suspect("refused")
		return s.unlessComplete(m, l, func() step { return again })
	}

	s.srv.suspect("reset")

	if m.requests == 0 {
		m.outcome = outcomeOK // nobody waits for an answer, and it may have arrived
		return done
	}

	// It may have arrived, and the stream shows what became of it.
	timer := time.NewTimer(tryAlone)
	defer timer.Stop()

	return s.responses(ctx, m, l, timer.C)
}

// judge decides what the backend's answer to a POST means.
func (s *sseSession) judge(ctx context.Context, m *sseMessage, l *sseLink, a *answer) step {
	if a.StatusCode < http.StatusMultipleChoices {
		// Where the response is on the stream, nothing that matters is here.
		if a.StatusCode == http.StatusOK && a.kind != typeEventStream {
			_ = a.read(maxPeek)
		}

		m.accepted(ctx, true)
		m.tell(a)

		if m.requests == 0 {
			m.outcome = outcomeOK
			return done
		}

		return s.responses(ctx, m, l, nil)
	}

	if err := a.read(maxWhole); err != nil {
		return s.failed(ctx, m, l, err, Trace{Wrote: true, Answered: true})
	}

	rpc, isRPC := a.rpc()

	switch how := lossOf(a, rpc, isRPC); {
	case how == lossCertain, how == lossPossible && !l.alive(ctx):
		return s.lost(ctx, m, l)
	case ctx.Err() != nil:
		return s.left(ctx, m, l)
	}

	return s.unlessComplete(m, l, func() step {
		if notMCP(a, isRPC) {
			return s.unavailable(m, a)
		}

		m.outcome = statusOutcome(a, nil)

		if !m.tell(a) {
			return s.fail(m, interruptedFailure(ReasonBackend, false))
		}

		return done
	})
}

// lost decides after the backend said that it doesn't know the session, whose
// stream may still be open: the message had no effect.
func (s *sseSession) lost(ctx context.Context, m *sseMessage, l *sseLink) step {
	m.renews++

	switch withdrawn := l.withdraw(m); {
	case !withdrawn:
		return done
	case !s.sess.owns(m.forward):
		m.outcome = outcomeClientError

		if !m.tell(noSession(m.env.messages[0].id)) {
			s.each(m, noSessionBody)
		}

		return done
	case m.renews > maxRenews:
		return s.fail(m, awayFailure(ReasonNotReady))
	}

	m.tell(nil)
	s.srv.doubt("unknown_session")
	l.end()

	select {
	case <-l.gone:
		return again
	case <-ctx.Done():
		return s.left(ctx, m, l)
	}
}

// unavailable decides after an answer of which no client could make sense.
func (s *sseSession) unavailable(m *sseMessage, a *answer) step {
	m.tell(nil)

	if a.StatusCode > http.StatusInternalServerError {
		s.srv.suspect("not_ready")
	} else {
		s.srv.ask("http_error") // perhaps this one request is too much for it
	}

	if !m.began.away && m.began.state.Phase >= Ready {
		m.odd++ // it was said to be there
	}

	switch {
	case m.requests == 0:
		m.outcome = outcomeBackend
		return done
	case m.onlyReads() && a.StatusCode > http.StatusInternalServerError && m.odd < maxOdd:
		return again
	default:
		return s.fail(m, interruptedFailure(ReasonBackend, !m.onlyReads()))
	}
}

// responses waits for the responses to a message that was sent, at most until
// limit gives something.
func (s *sseSession) responses(ctx context.Context, m *sseMessage, l *sseLink, limit <-chan time.Time) step {
	select {
	case <-m.complete:
		return done
	case <-l.gone:
	case <-limit:
	case <-ctx.Done():
		return s.left(ctx, m, l)
	}

	return s.unlessComplete(m, l, func() step { return s.repeat(m, l) })
}

// unlessComplete withdraws a message and decides, unless its responses came
// meanwhile.
func (s *sseSession) unlessComplete(m *sseMessage, l *sseLink, decide func() step) step {
	if !l.withdraw(m) {
		<-m.complete
		return done
	}

	return decide()
}

// repeat sends a message again if it may have run without harm, and fails it
// otherwise.
func (s *sseSession) repeat(m *sseMessage, l *sseLink) step {
	if l.hasDialog(m) || m.repeats >= maxRepeats || !m.mayRepeat(false) {
		s.srv.metrics.replay(replayRefused)
		return s.fail(m, interruptedFailure(ReasonInterrupted, !m.onlyReads()))
	}

	m.repeats++
	s.srv.metrics.replay(replaySent)

	return again
}

// left ends a message that was cancelled, or whose client or session is gone.
func (s *sseSession) left(ctx context.Context, m *sseMessage, l *sseLink) step {
	return s.unlessComplete(m, l, func() step {
		s.giveUp(ctx, m)
		return done
	})
}

func (s *sseSession) giveUp(ctx context.Context, m *sseMessage) {
	m.outcome = outcomeClosed

	s.mu.Lock()
	refused := s.refused
	s.mu.Unlock()

	if refused && !errors.Is(context.Cause(ctx), errCancelled) {
		m.outcome = outcomeClientError
		s.each(m, noSessionBody)
	}
}

// noSession refuses a POST like refuseSession does.
func noSession(id []byte) *answer {
	h := http.Header{"Content-Type": {typeJSON}}

	return &answer{Response: &http.Response{StatusCode: http.StatusNotFound, Header: h}, head: noSessionBody(id)}
}

func noSessionBody(id []byte) []byte { return errorBody(id, codeNoSession, "Session not found", nil) }

// notLetThrough answers a message that was held in vain.
func (s *sseSession) notLetThrough(ctx context.Context, m *sseMessage, err error) {
	switch {
	case ctx.Err() != nil:
		s.giveUp(ctx, m)
	case m.requests == 0:
		m.outcome = outcomeUnavailable
	case m.repeats > 0 && !m.onlyReads():
		s.fail(m, interruptedFailure(ReasonInterrupted, true))
	default:
		s.fail(m, heldFailure(err))
	}
}

// fail answers every request that has no response yet with an error of the
// sidecar's own.
func (s *sseSession) fail(m *sseMessage, f *rpcFailure) step {
	m.outcome = f.outcome
	s.each(m, f.body)

	return done
}

func (s *sseSession) each(m *sseMessage, body func(id []byte) []byte) {
	m.tell(nil)

	for i := range m.env.messages {
		if e := &m.env.messages[i]; e.kind == kindRequest && !m.answered[idKey(e.id)] {
			_ = s.c.write(appendEvent(nil, "message", "", body(e.id)))
		}
	}
}
