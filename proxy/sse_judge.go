package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"
)

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

	switch {
	case m.requests > 0:
	case m.saysInitialized() && m.repeats < maxRepeats:
		m.repeats++
		return again
	default:
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
		s.letOthers(m) // the client may send the next as soon as it is told
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

	if refused && !m.cancelled && !errors.Is(context.Cause(ctx), errCancelled) {
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
	case m.left(ctx):
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
		if e := &m.env.messages[i]; e.kind == kindRequest && !m.isAnswered(e.id) {
			_ = s.c.write(appendEvent(nil, "message", "", body(e.id)))
		}
	}
}
