package proxy

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"
)

// Codes of errors about a request that the same request would get again (MCP
// 2026-07-28 "Error codes").
const (
	codeNoMethod       = -32601
	codeHeaderMismatch = -32020
	codeNoCapability   = -32021
	codeNoVersion      = -32022
)

// listen serves a subscriptions/listen request. Until the backend acknowledges it
// is a request like any other: it is held, sent again and failed as those are. From
// then on it is the client's stream, whatever becomes of the backend.
func (x *exchange) listen(ctx context.Context) {
	m := &x.env.messages[0]
	ctx, cancel := context.WithCancelCause(ctx)

	defer cancel(nil)

	s := &subscription{
		x: x, cancel: cancel, srv: x.srv, id: m.id, caller: x.caller(),
		tools: filterOf(m.filter)[toolsChanged] == true,
		told:  x.srv.generation.Load(),
	}

	// A stream that ends because the sidecar does leaves a connection that is about
	// to be closed: the client must not send its next request on it.
	if x.r.ProtoMajor == 1 {
		x.out.w.Header().Set("Connection", "close")
	}

	x.srv.subscriptions.add(s)
	defer x.srv.subscriptions.remove(s)

	if x.p.draining.Load() {
		s.end()
	}

	x.run(ctx, s.try)
}

// send sends the client's request as it is.
func (s *subscription) send(ctx context.Context) (*http.Response, Trace, error) {
	x := s.x

	return s.srv.send(ctx, outgoing{method: http.MethodPost, header: x.forward, query: x.r.URL.RawQuery, body: x.body})
}

// try sends the request for the first time, and again until there is an answer
// that the client can have.
func (s *subscription) try(ctx context.Context) step {
	x := s.x

	bound, unbind := context.WithCancel(ctx)
	defer unbind()

	s.bind(unbind)
	defer s.bind(nil)

	x.hold.attempts++
	x.began, x.beganAt = s.srv.gate.look(), time.Now()
	s.process = x.began.process

	resp, trace, err := s.send(bound)

	switch {
	case err != nil && bound.Err() != nil && ctx.Err() == nil:
		return again // the process is another one by now
	case err != nil:
		return x.failed(ctx, err, trace)
	case x.alone:
		s.srv.gate.answered()
	}

	defer func() { _ = resp.Body.Close() }()

	a := newAnswer(resp)

	if a.StatusCode == http.StatusOK && a.kind == typeEventStream && a.plain {
		return s.first(ctx, bound, a)
	}

	if err := a.read(maxWhole); err != nil {
		return x.broken(ctx)
	}

	if rpc, ok := a.rpc(); ok && s.tools && unserved(rpc) {
		return s.alone(ctx)
	}

	resp.Body = &unread{io.MultiReader(bytes.NewReader(a.head), resp.Body), resp.Body}

	return x.judge(ctx, resp, target{})
}

// unread is a body of which something was read that is to be read again.
type unread struct {
	io.Reader
	io.Closer
}

// unserved reports whether a response says that the backend has no such streams,
// or nothing to say on this one.
func unserved(rpc *message) bool { return !rpc.isError || rpc.errorCode == codeNoMethod }

// first reads the backend's first stream up to its acknowledgement, and then
// serves the subscription.
func (s *subscription) first(ctx, bound context.Context, a *answer) step {
	x := s.x

	if !x.out.begun {
		responseHeader(x.out.w.Header(), a.Header)
	}

	if x.out.beginStream() != nil {
		return x.clientLeft()
	}

	events := newEventReader(a.Body, maxEvent)

	for {
		ev, err := events.Next()

		switch {
		case err != nil && errors.Is(err, errEventTooLarge):
			return x.fail(interruptedFailure(ReasonBackend, false))
		case err != nil && bound.Err() != nil && ctx.Err() == nil:
			return again
		case err != nil && ctx.Err() != nil:
			return x.clientLeft()
		case err != nil:
			return x.interrupted("stream_ended")
		}

		m := single(ev.data)

		switch {
		case m == nil:
		case m.method == methodAcknowledged:
			return s.acknowledged(ctx, &ev, m, func() bool {
				defer func() { _ = a.Body.Close() }()

				return s.read(ctx, bound, events, true)
			})
		case m.kind == kindResponse && s.tools && unserved(m):
			_ = a.Body.Close()

			return s.alone(ctx)
		case m.kind == kindResponse:
			x.outcome = outcomeOK
			if m.isError {
				x.outcome = outcomeRPCError
			}

			_ = x.out.raw(ev.raw)

			return done
		}

		if x.out.raw(ev.raw) != nil {
			return x.clientLeft()
		}
	}
}

// single returns the single JSON-RPC message that the data of an event is, nil
// when it is none.
func single(data []byte) *message {
	if len(data) == 0 {
		return nil
	}

	e, err := readEnvelope(data)
	if err != nil || e.batch {
		return nil
	}

	return &e.messages[0]
}

// acknowledged serves a subscription that the backend has acknowledged. Of a
// changed tool list the client is told also where the backend didn't agree to. read
// reads what is left of the backend's stream.
func (s *subscription) acknowledged(ctx context.Context, ev *event, m *message, read func() bool) step {
	raw, filter := ev.raw, filterOf(acknowledgedFilter(ev.data, m))
	s.silent = empty(filter)

	if s.tools && filter[toolsChanged] != true {
		body, _ := setTrue(ev.data, "params", "notifications", toolsChanged)

		edited := single(body)
		if edited == nil || filterOf(acknowledgedFilter(body, edited))[toolsChanged] != true {
			body = s.acknowledgement()
			edited = single(body)
		}

		raw, filter = ev.with(body), filterOf(acknowledgedFilter(body, edited))
	}

	return s.serve(ctx, raw, filter, read)
}

// alone serves a subscription that the backend can't serve.
func (s *subscription) alone(ctx context.Context) step {
	s.silent = true

	return s.serve(ctx, appendEvent(nil, "message", "", s.acknowledgement()), map[string]any{toolsChanged: true}, nil)
}

// serve acknowledges the subscription and serves it to its end.
func (s *subscription) serve(ctx context.Context, ack []byte, filter map[string]any, read func() bool) step {
	x := s.x
	x.outcome = outcomeOK
	s.promised = filter

	s.c = &clientStream{
		w: x.out.w, rc: &x.out.rc, every: x.cfg.KeepAlive, first: x.out.first, stop: s.cancel,
	}
	defer s.c.close()

	s.srv.metrics.inFlight.Dec() // it is a stream from now on
	s.srv.metrics.streams.Inc()

	defer func() {
		s.srv.metrics.streams.Dec()
		s.srv.metrics.inFlight.Inc()
	}()

	if x.out.begun {
		s.c.adopt()
	}

	if s.c.write(ack) != nil {
		return done
	}

	if s.acknowledge() {
		s.follow(ctx, read)
	}

	s.finish()

	return done
}

// acknowledge notes that the client has its acknowledgement. It returns false when
// the subscription must end.
func (s *subscription) acknowledge() bool {
	generation := s.srv.generation.Load()

	s.mu.Lock()
	s.acked = true
	told, ending := s.told, s.ending
	s.mu.Unlock()

	if generation > told { // while the request was held
		s.settled(generation)
	}

	return !ending
}

// follow serves the subscription until its client leaves or it must end.
func (s *subscription) follow(ctx context.Context, read func() bool) {
	goOn := read == nil || read()

	for goOn && ctx.Err() == nil {
		goOn = s.once(ctx)
	}

	if ctx.Err() == nil && s.tools {
		s.lastWord(ctx)
	}
}

// lastWordMost is how long a subscription that ends waits for a verdict on the
// tool list.
const lastWordMost = 5 * time.Second

// lastWord waits until it is known whether the tool list changed: a client that
// subscribes anew is told only of what changes later.
func (s *subscription) lastWord(ctx context.Context) {
	over := time.NewTimer(lastWordMost)
	defer over.Stop()

	for {
		v := s.srv.gate.look()
		if v.passes(needSettled) {
			s.settled(v.state.Generation)
			return
		}

		select {
		case <-v.changed:
		case <-over.C:
			return
		case <-ctx.Done():
			return
		}
	}
}
