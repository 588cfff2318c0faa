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

// once opens the backend's stream again and reads it to its end, or waits until
// that can be tried. It returns false when the subscription must end.
func (s *subscription) once(ctx context.Context) bool {
	// Whoever finds that the process is another one ends the wait or the reading.
	// That must be possible before anything is looked at.
	bound, unbind := context.WithCancel(ctx)
	defer unbind()

	s.bind(unbind)
	defer s.bind(nil)

	v := s.srv.gate.look()
	if s.process != v.process {
		s.process, s.silent, s.fails, s.odd = v.process, false, 0, 0
	}

	if v.away {
		if !pause(bound, v.changed, s.srv.gate.patience()) {
			return true
		}

		// Without a verdict the backend is tried all the same.
		now := s.srv.gate.look()
		if now.away && (!now.untold || now.verdicts != v.verdicts) {
			return true
		}

		v = now
	}

	switch {
	case s.silent:
		pause(bound, nil, never)

		return true
	case s.fails > 0 && !pause(bound, nil, s.backoff()):
		return true
	}

	s.fails++

	// After a swap every subscription comes here at once.
	select {
	case s.srv.reopen <- struct{}{}:
	case <-bound.Done():
		return true
	}

	release := sync.OnceFunc(func() { <-s.srv.reopen })
	defer release()

	resp, _, err := s.send(bound)
	if err != nil {
		if bound.Err() == nil {
			s.srv.suspect("refused")
		}

		return true
	}

	defer func() { _ = resp.Body.Close() }()

	if v.away {
		s.srv.gate.answered()
	}

	a := newAnswer(resp)

	if a.StatusCode != http.StatusOK || a.kind != typeEventStream || !a.plain {
		_ = a.read(maxPeek)
		rpc, _ := a.rpc()

		return s.refused(a.StatusCode, rpc)
	}

	release()

	return s.read(ctx, bound, newEventReader(a.Body, maxEvent), false)
}

// pause waits until something happens, and reports whether that isn't the end of
// ctx.
func pause(ctx context.Context, changed <-chan struct{}, most time.Duration) bool {
	timer := time.NewTimer(most)
	defer timer.Stop()

	select {
	case <-changed:
	case <-timer.C:
	case <-ctx.Done():
	}

	return ctx.Err() == nil
}

func (s *subscription) backoff() time.Duration {
	d := min(reopenLeast<<min(s.fails-1, 12), reopenMost)

	return d/2 + rand.N(d) //nolint:gosec // it only spreads the load
}

// refused decides after an answer to a repeated request that is no stream. The
// client can't get that answer any more; where it would be the same for a new
// request, the subscription ends so that the client makes one and learns why.
func (s *subscription) refused(status int, rpc *message) bool {
	code := int64(0)
	if rpc != nil {
		code = rpc.errorCode
	}

	switch {
	case rpc != nil && unserved(rpc):
		return s.unserved()
	case status == http.StatusUnauthorized, status == http.StatusForbidden,
		code == codeHeaderMismatch, code == codeNoCapability, code == codeNoVersion:
		return false
	case status >= http.StatusInternalServerError, status == http.StatusRequestTimeout, status == http.StatusConflict,
		status == http.StatusTooEarly, status == http.StatusTooManyRequests:
		return true // it, or what is before it, isn't ready
	default:
		s.odd++

		return s.odd < maxOdd
	}
}

// unserved notes that the process has nothing to say to the client.
func (s *subscription) unserved() bool {
	s.silent = true

	return honours(nil, s.promised)
}

// read passes on the messages of one stream of the backend. It returns false when
// the subscription must end.
func (s *subscription) read(ctx, bound context.Context, events *eventReader, acked bool) bool {
	start := time.Now()

	defer func() {
		if bound.Err() != nil || time.Since(start) > reopenFresh {
			s.fails = 0 // it worked, or was ended from here
		}
	}()

	for ctx.Err() == nil {
		ev, err := events.Next()
		if err != nil {
			if bound.Err() == nil {
				s.lost(err)
			}

			return true
		}

		m := single(ev.data)

		switch {
		case m == nil:
			_ = s.c.write(ev.raw) // comments
		case m.method == methodAcknowledged && !acked:
			acked = true
			filter := filterOf(acknowledgedFilter(ev.data, m))
			s.silent, s.odd = empty(filter), 0

			if !honours(filter, s.promised) {
				return false
			}
		case m.kind == kindResponse && m.isError:
			return s.refused(http.StatusOK, m)
		case m.kind == kindResponse && !acked:
			return s.unserved()
		case m.kind == kindResponse, m.method == methodCancelled && idKey(m.cancelledID) == idKey(s.id):
			return s.ended(&ev)
		case m.method == methodListChanged:
			s.takeNotice()
		default:
			_ = s.c.write(ev.raw)
		}
	}

	return true
}

// lost notes that the backend's stream broke, or ended without a word.
func (s *subscription) lost(err error) {
	s.srv.logger.Debug("the backend's stream of a subscription ended", "err", err)

	if !errors.Is(err, io.EOF) {
		s.srv.gate.broke()
	}

	s.srv.ask("stream_ended")
}

// ended decides after the backend ended the stream gracefully. It does so when it
// is stopped, and many clients never subscribe again: so the client isn't told, and
// the request is made again. Only where nothing was promised is that the end of it.
func (s *subscription) ended(ev *event) bool {
	if empty(s.promised) {
		_ = s.c.write(ev.raw)
		s.finished = true

		return false
	}

	if !s.silent {
		s.srv.ask("stream_ended")
	}

	return true
}
