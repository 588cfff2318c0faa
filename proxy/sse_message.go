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

	cancel  context.CancelCauseFunc
	told    atomic.Bool
	dropped atomic.Bool  // the client cancelled a request of it
	reply   chan *answer // what to answer the POST with, nil for 202; gets one

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
	m.endTrace()
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

	said, dropped := false, false

	for i := range m.env.messages {
		switch e := &m.env.messages[i]; {
		case e.kind == kindResponse:
			m.answers = append(m.answers, s.answerTo(e))
		case e.method == methodCancelled && e.cancelledID != nil:
			dropped = s.cancel(e.cancelledID) && !m.env.batch
		case e.method == methodInitialized:
			said = true
		}
	}

	if dropped {
		m.outcome = outcomeOK
		m.ended()
		m.tell(nil)

		return true
	}

	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.tasks.start(ctx, never, func(ctx context.Context) { s.run(ctx, m) }) {
		return false
	}

	if s.running == nil {
		s.running = make(map[*sseMessage]struct{})
	}

	s.running[m] = struct{}{}
	s.said = s.said || said

	if said && !m.env.batch {
		m.announces, s.first = true, m
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

// cancel ends what the client cancelled, wherever it is. It returns true when the
// backend never had it.
func (s *sseSession) cancel(id []byte) bool {
	s.drop(id)

	if s.sess.cancelHeld(id) {
		return true
	}

	s.mu.Lock()
	l := s.link
	s.mu.Unlock()

	if l != nil {
		l.cancel(id)
	}

	return false
}

// drop marks the messages with a request that the client cancelled: one may be on
// its way from where it was held to the backend, or back.
func (s *sseSession) drop(id []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for m := range s.running {
		for i := range m.env.messages {
			if e := &m.env.messages[i]; e.kind == kindRequest && idKey(e.id) == idKey(id) {
				m.dropped.Store(true)
			}
		}
	}
}

// run brings a message to the backend and sees to it that its requests are
// answered.
func (s *sseSession) run(ctx context.Context, m *sseMessage) {
	ctx, cancel := context.WithCancelCause(ctx)
	m.cancel = cancel

	defer cancel(nil)
	defer s.ran(m)
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

		if err := m.keep(ctx, func(ctx context.Context) error { return s.awaitLink(ctx, m) }); err != nil {
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

	if m.dropped.Load() { // while nobody could have found it
		m.cancel(errCancelled)
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
