package proxy

import (
	"context"
	"errors"
	"hash/maphash"
	"io"
	"net/http"
)

// eventKind says on which stream of a session an event came.
type eventKind uint8

const (
	eventOfPost   eventKind = iota // an answer to a request
	eventOfListen                  // the session's own stream
)

// Bounds of what a session remembers of events.
const (
	maxEventIDs = 128
	maxExpected = 16
)

// eventIDs remembers which event ids the backend's process has given out lately,
// so that none is ever sent to another one, which might take it for one of its
// own. It is guarded by the session's lock.
type eventIDs struct {
	ring     []eventMark
	next     int
	expected []expectation
}

type eventMark struct {
	hash   uint64
	life   life
	breaks uint64 // of the gate: after any break the process may be another
	kind   eventKind
}

// expectation is requests whose answer the backend wants to be polled for.
type expectation struct {
	hash uint64 // of the last event id before
	ids  [][]byte
}

// noteEvent remembers an event id that was passed on.
func (s *session) noteEvent(id string, kind eventKind, at *view) {
	if id == "" {
		return
	}

	mark := eventMark{hash: maphash.String(s.srv.seed, id), breaks: at.breaks, kind: kind}

	s.mu.Lock()
	defer s.mu.Unlock()

	mark.life = life{process: at.process, renewal: s.renewals}

	if len(s.events.ring) < maxEventIDs {
		s.events.ring = append(s.events.ring, mark)
		return
	}

	s.events.ring[s.events.next] = mark
	s.events.next = (s.events.next + 1) % maxEventIDs
}

// resumable reports whether an event id may be sent to the backend, and which
// stream it is a place in.
func (s *session) resumable(id string) (eventKind, bool) {
	if id == "" {
		return 0, false
	}

	hash, v := maphash.String(s.srv.seed, id), s.srv.gate.look()

	s.mu.Lock()
	defer s.mu.Unlock()

	now := life{process: v.process, renewal: s.renewals}

	for _, m := range s.events.ring {
		if m.hash == hash && m.life == now && m.breaks == v.breaks && !v.away {
			return m.kind, true
		}
	}

	return 0, false
}

// expect notes that requests are to be answered on a stream that the client opens
// with an event id.
func (s *session) expect(id string, ids [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if len(s.events.expected) >= maxExpected {
		s.events.expected = s.events.expected[1:]
	}

	s.events.expected = append(s.events.expected, expectation{maphash.String(s.srv.seed, id), ids})
}

// abandoned takes the requests whose answer a client polls for in vain: the
// process that had them is gone.
func (s *session) abandoned(id string) [][]byte {
	hash := maphash.String(s.srv.seed, id)

	s.mu.Lock()
	defer s.mu.Unlock()

	for i, e := range s.events.expected {
		if e.hash == hash {
			s.events.expected = append(s.events.expected[:i], s.events.expected[i+1:]...)
			return e.ids
		}
	}

	return nil
}

// forget drops the ids of a session that was re-created. What clients still poll
// for stays, to be told that it won't come.
func (e *eventIDs) forget() { e.ring, e.next = nil, 0 }

// asked notes a request of the backend that is passed on to the client.
func (s *session) asked(id []byte, at *view) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.fence.ask(id, life{process: at.process, renewal: s.renewals})
}

// resume serves a stream on which a client polls for the rest of an answer. It is
// none of the session's listening streams. It returns false when the backend
// offers no such stream: the client may listen all the same.
func (l *listener) resume(ctx context.Context, from string) bool {
	pending := l.sess.abandoned(from)
	header := l.forward.Clone()
	header.Set(headerLastEvent, from)

	at := l.srv.gate.look()

	resp, _, err := l.srv.send(ctx, outgoing{
		method: http.MethodGet, header: header, session: l.sess.target().backend, query: l.query, accept: typeEventStream,
	})
	if err != nil {
		if ctx.Err() == nil {
			l.srv.suspect("refused")
			l.giveUp(pending)
		}

		return false
	}

	defer func() { _ = resp.Body.Close() }()

	a := newAnswer(resp)

	switch {
	case a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden:
		_ = a.read(maxPeek)
		_ = l.deny(&deniedError{a.StatusCode, a.Header, a.head})

		return true
	case a.StatusCode != http.StatusOK || a.kind != typeEventStream || !a.plain:
		l.giveUp(pending)
		return false
	}

	l.c.setPrivate()
	l.result = l.poll(ctx, a, from, pending, at)

	return true
}

// poll passes on a stream with the rest of an answer.
func (l *listener) poll(ctx context.Context, a *answer, from string, pending [][]byte, at *view) outcome {
	if l.c.begin() != nil {
		return outcomeClosed
	}

	events, last := newEventReader(a.Body, maxEvent), from

	// What is still to come then is polled for again.
	defer func() {
		if len(pending) > 0 {
			l.sess.expect(last, pending)
		}
	}()

	for {
		ev, err := events.Next()

		switch {
		case err != nil && ctx.Err() != nil:
			return outcomeClosed
		case errors.Is(err, io.EOF):
			return outcomeOK
		case err != nil:
			l.srv.suspect("reset")
			l.giveUp(pending)

			pending = nil

			return outcomeBackend
		}

		if ev.hasID {
			last = ev.id
			l.sess.noteEvent(ev.id, eventOfPost, at)
		}

		if e, err := readEnvelope(ev.data); len(ev.data) > 0 && err == nil {
			for i := range e.messages {
				switch m := &e.messages[i]; m.kind {
				case kindRequest:
					l.sess.asked(m.id, at)
				case kindResponse:
					pending = without(pending, m.id)
				case kindNotification:
				}
			}
		}

		if l.c.write(ev.raw) != nil {
			return outcomeClosed
		}
	}
}

// without returns the ids but one.
func without(ids [][]byte, id []byte) [][]byte {
	var rest [][]byte

	for _, i := range ids {
		if idKey(i) != idKey(id) {
			rest = append(rest, i)
		}
	}

	return rest
}
