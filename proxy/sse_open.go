package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"
)

// sseOpenTimeout bounds how long a backend may take to open its stream and say
// where to post messages.
const sseOpenTimeout = 20 * time.Second

// once opens the backend's stream and reads it to its end, or waits until that can
// be tried. Like what it calls, it reports whether the client's stream is over.
func (s *sseSession) once(ctx context.Context) (over bool) {
	if s.fails > 0 {
		waitChange(ctx, nil, s.backoff())
	}

	v := s.srv.gate.look()

	if v.away {
		waitChange(ctx, v.changed, s.srv.gate.patience())

		// Without a verdict the backend is tried all the same.
		now := s.srv.gate.look()
		if now.away && (!now.untold || now.verdicts != v.verdicts) {
			return false
		}

		if v.state.Phase == Away {
			s.fails = 0
		}

		v = now
	}

	if s.process != v.process {
		s.process, s.fails = v.process, 0
	}

	if ctx.Err() != nil {
		return false
	}

	s.fails++

	return s.open(ctx, v)
}

// waitChange returns when something changed, or after a while.
func waitChange(ctx context.Context, changed <-chan struct{}, most time.Duration) {
	timer := time.NewTimer(most)
	defer timer.Stop()

	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (s *sseSession) backoff() time.Duration {
	d := min(reopenLeast<<min(s.fails-1, 12), reopenMost)

	return d/2 + rand.N(d) //nolint:gosec // it only spreads the load
}

// open opens the backend's stream and reads it to its end.
func (s *sseSession) open(ctx context.Context, v *view) (over bool) {
	release := func() {}

	// After a swap every client's session comes here at once. A client that is
	// only just opening its stream doesn't wait for them.
	if s.c.isOpen() {
		select {
		case s.srv.reopen <- struct{}{}:
		case <-ctx.Done():
			return false
		}

		release = sync.OnceFunc(func() { <-s.srv.reopen })
		defer release()
	}

	bound, end := context.WithCancel(ctx)
	defer end()

	watchdog := time.AfterFunc(sseOpenTimeout, end)
	defer watchdog.Stop()

	conf := s.srv.conf()

	resp, _, err := s.srv.send(bound, outgoing{
		method: http.MethodGet, header: s.sess.refreshed(s.forward), query: s.query, accept: typeEventStream,
	})
	if err != nil {
		return s.unreached(ctx, bound, err)
	}

	defer func() { _ = resp.Body.Close() }()

	if v.away {
		s.srv.gate.answered()
	}

	a := newAnswer(resp)
	if a.StatusCode != http.StatusOK || a.kind != typeEventStream || !a.plain {
		return s.noStream(a, v)
	}

	l := &sseLink{
		s: s, stream: a.Request, conf: conf, process: v.process, end: end, gone: make(chan struct{}),
		flights: make(map[string][]*sseMessage), own: make(map[string]chan []byte),
	}

	if l.stream == nil {
		l.stream = &http.Request{URL: conf.Upstream, Host: conf.Upstream.Host}
	}

	events := newEventReader(a.Body, maxEvent)

	switch err := l.begin(events); {
	case errors.Is(err, errEndpoint):
		return s.refuseEndpoint(err)
	case err != nil:
		if ctx.Err() == nil {
			s.srv.logger.Debug("the backend's stream didn't begin", "err", err)
			s.srv.ask("not_ready")
		}

		return false
	}

	watchdog.Stop()

	if s.late.Stop() { // else the client's stream may have begun
		responseHeader(s.c.w.Header(), a.Header)
	}

	if s.begin() != nil {
		return true
	}

	return l.serve(ctx, bound, events, release)
}

// unreached decides after a try that brought no answer.
func (s *sseSession) unreached(ctx, bound context.Context, err error) (over bool) {
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, errRedirect):
		s.srv.logger.Warn("the backend redirects in a way that is not followed, point upstream at its final address", "err", err)
		s.refuse(func(w http.ResponseWriter) { unavailable(w, err) })

		return true
	case bound.Err() != nil:
		s.srv.ask("not_ready")
	default:
		s.srv.suspect("refused")
	}

	return false
}

// noStream decides after an answer that is no stream.
func (s *sseSession) noStream(a *answer, v *view) (over bool) {
	if a.read(maxPeek) != nil {
		s.srv.suspect("reset")
		return false
	}

	if !v.away && v.state.Phase >= Ready {
		s.odd++ // it was said to be there
	}

	denied := a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden
	ours := a.StatusCode >= http.StatusBadRequest && a.StatusCode < http.StatusInternalServerError

	switch {
	case denied, ours && s.odd >= maxOdd && !s.c.isOpen():
		// A client that has its stream learns why when it opens the next.
		s.refuse(func(w http.ResponseWriter) {
			responseHeader(w.Header(), a.Header)
			w.WriteHeader(a.StatusCode)
			_, _ = w.Write(a.head)
		})

		return true
	case ours:
		s.srv.ask("http_error")
	default:
		s.srv.suspect("not_ready")
	}

	return false
}
