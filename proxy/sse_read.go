package proxy

import (
	"bytes"
	"context"
	"time"
)

// read passes on what comes on the backend's stream until it ends.
func (l *sseLink) read(ctx context.Context, events *eventReader) error {
	for {
		ev, err := events.Next()
		if err != nil {
			return err
		}

		if err := l.pass(ctx, &ev); err != nil {
			return err
		}
	}
}

// pass passes on one event. An error ends the stream.
func (l *sseLink) pass(ctx context.Context, ev *event) error {
	if ev.typ == typeEndpoint && ev.hasData {
		return l.moved(ev.data)
	}

	e, err := readEnvelope(ev.data)
	if len(ev.data) == 0 || err != nil {
		return l.s.write(ev.raw)
	}

	raw := ev.raw

	for i := range e.messages {
		r := &e.messages[i]

		if r.kind != kindResponse {
			if l.called(r, ev.data, e.batch) {
				return nil
			}

			continue
		}

		if !e.batch && l.isOwn(r, ev.data) {
			return nil
		}

		m, last := l.take(r)

		switch {
		case m == nil && !e.batch && idKey(r.id) != idKey([]byte("null")):
			return nil // it was answered already, by the backend or for it
		case m == nil:
			continue
		case last:
			defer close(m.complete) // after it was passed on
		}

		if changed, body := l.response(ctx, m, r, ev.data); changed {
			raw = withData(ev, body)
		}
	}

	l.used = true

	return l.s.write(raw)
}

// called looks at a request or a notification of the backend, and reports whether
// the client doesn't get it now.
func (l *sseLink) called(r *message, data []byte, batch bool) (taken bool) {
	switch {
	case r.kind == kindRequest:
		l.s.asked(r.id)

		if r.method != methodPing {
			l.converse(func(*message) bool { return true }) // any call may need the answer
		}
	case r.method == methodListChanged:
		return !batch && l.s.sess.takeNotice()
	case r.method == methodProgress:
		if token := rawMember(r.params.of(data), "progressToken"); token != nil {
			key := idKey(token)
			l.converse(func(e *message) bool { return e.progressToken != nil && idKey(e.progressToken) == key })
		}
	}

	return false
}

// response looks at the response to a client's request, and returns what the
// client gets instead of it where that is something else.
func (l *sseLink) response(ctx context.Context, m *sseMessage, r *message, data []byte) (changed bool, body []byte) {
	l.s.srv.metrics.firstByte(m.label, time.Since(m.start))

	if !m.env.batch {
		m.see(ctx, r, data)
	}

	if !m.init || r.isError {
		return false, nil
	}

	l.s.initialized(m, r, data)

	body, changed = withListChanged(data)

	return changed, body
}

// initialized keeps what it takes to initialise another session of the backend in
// the client's name.
func (s *sseSession) initialized(m *sseMessage, r *message, data []byte) {
	s.mu.Lock()
	s.params = m.env.messages[0].params.of(m.body)
	s.mu.Unlock()

	s.sess.mu.Lock()
	defer s.sess.mu.Unlock()

	s.sess.version = stringMember(r.result.of(data), memberProtocol)

	if m.waited > 0 {
		s.sess.budget = max(0, m.hold.budget)
	}
}

// asked notes a request of the backend that is passed on to the client.
func (s *sseSession) asked(id []byte) {
	now := s.life()

	s.sess.mu.Lock()
	defer s.sess.mu.Unlock()

	s.sess.fence.ask(id, now)
}

// isOwn reports whether a response answers a request of the sidecar's own, and
// hands it over.
func (l *sseLink) isOwn(r *message, data []byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	key := idKey(r.id)

	waiting := l.own[key]
	if waiting == nil {
		return false
	}

	delete(l.own, key)
	waiting <- bytes.Clone(data)

	return true
}

// write writes events to the client's stream.
func (s *sseSession) write(raw []byte) error {
	if s.c.write(raw) != nil {
		return errStreamOver
	}

	return nil
}

// withData returns an event with other data.
func withData(ev *event, data []byte) []byte {
	if bytes.Count(ev.raw, ev.data) == 1 { // on one line, as nearly always
		return bytes.Replace(ev.raw, ev.data, data, 1)
	}

	return appendEvent(nil, ev.typ, ev.id, data)
}

// rawMember returns a member of a raw JSON object as it is spelled, nil without
// one.
func rawMember(object []byte, name string) []byte {
	s := scanner{b: object}

	at, ok := s.find(name)
	if !ok {
		return nil
	}

	return at.of(object)
}
