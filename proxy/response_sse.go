package proxy

import (
	"context"
	"errors"
	"io"
	"slices"
)

// eventCopy copies the event stream that answers a request.
type eventCopy struct {
	x      *exchange
	a      *answer
	t      target
	final  bool   // every request has its response
	lastID string // of the last event with one
	early  []byte // events before the response to initialize
	events *eventReader
}

// stream hands an event stream to the client, event by event.
func (x *exchange) stream(ctx context.Context, a *answer, t target) step {
	c := &eventCopy{x: x, a: a, t: t}

	// What came together with the header goes out together with it. A message that
	// wants no answer needs none of what may never come.
	if !x.init && x.requests > 0 && !a.ahead() && c.begin() != nil {
		return x.clientLeft()
	}

	c.events = newEventReader(a.Body, maxEvent)

	for {
		ev, err := c.events.Next()
		if err != nil {
			return c.ended(ctx, err)
		}

		if s, err := c.pass(ctx, &ev); err != nil {
			return x.clientLeft()
		} else if s != 0 {
			return s
		}
	}
}

// begin sends the header.
func (c *eventCopy) begin() error {
	c.header()

	return c.x.out.beginStream()
}

// header puts the backend's header into the answer, unless that is out already.
func (c *eventCopy) header() {
	if !c.x.init && !c.x.out.begun {
		responseHeader(c.x.out.w.Header(), c.a.Header)
	}
}

// pass hands one event on. It returns a step when the copying is over.
func (c *eventCopy) pass(ctx context.Context, ev *event) (step, error) {
	x := c.x

	if ev.hasID {
		c.lastID = ev.id

		if x.sess != nil {
			x.sess.noteEvent(ev.id, eventOfPost, x.began)
		}
	}

	e, err := readEnvelope(ev.data)
	if len(ev.data) == 0 || err != nil {
		return 0, c.write(ev.raw, !ev.isComment())
	}

	raw := ev.raw

	for i := range e.messages {
		m := &e.messages[i]

		switch {
		case m.kind == kindRequest && x.sess != nil:
			x.sess.asked(m.id, x.began)
		case m.kind == kindNotification && m.method == methodListChanged && !e.batch && x.sess != nil:
			if x.sess.takeNotice() {
				return 0, nil // it will be told with others, or on another stream
			}
		case m.kind == kindResponse:
			if s := c.response(ctx, ev, &e, m); s != 0 {
				return s, nil
			}

			x.accepted(ctx, !m.isError)

			switch {
			case m.isError:
			case x.init:
				raw = c.initialized(ctx, ev, m)
			case x.discovers:
				raw = x.discoveredEvent(ev)
			}
		}
	}

	return 0, c.write(raw, true)
}

// response looks at a response. It returns a step when that must not reach the
// client: the backend didn't know the session.
func (c *eventCopy) response(ctx context.Context, ev *event, e *envelope, m *message) step {
	x := c.x
	a := &answer{Response: c.a.Response, plain: true, head: ev.data, whole: true}

	if x.sess != nil && !x.sent && !e.batch && lossOf(a, m, true) == lossPossible {
		if x.sess.confirmLoss(ctx, a, c.t, ownHeader(x.forward)) {
			return x.renew(ctx, c.t)
		}
	}

	x.outcome = outcomeOK
	if m.isError {
		x.outcome = outcomeRPCError
	}

	if !x.isAnswered(m.id) {
		x.answered = append(x.answered, idKey(m.id))
	}

	if !x.env.batch {
		x.see(ctx, m, ev.data)
	}

	c.final = len(x.answered) >= x.requests

	return 0
}

// initialized makes the session whose id the header must name, and edits the
// result that it is made of.
func (c *eventCopy) initialized(ctx context.Context, ev *event, m *message) []byte {
	a := *c.a
	a.head, a.whole = ev.data, true

	responseHeader(c.x.out.w.Header(), a.Header)
	c.x.establish(ctx, &a, m)

	if body, changed := withListChanged(ev.data); changed {
		return ev.with(body)
	}

	return ev.raw
}

// write writes an event, or a comment. Before the response to initialize it is
// kept, since the header isn't known yet.
func (c *eventCopy) write(raw []byte, isEvent bool) error {
	if c.x.init && !c.final {
		if len(c.early)+len(raw) > maxWhole {
			return errEventTooLarge
		}

		c.early = append(c.early, raw...)

		return nil
	}

	if c.early != nil {
		raw = slices.Concat(c.early, raw)
		c.early = nil
	}

	c.header()

	write := c.x.out.raw
	if c.final && c.events.drained() {
		write = c.x.out.last
	}

	if err := write(raw); err != nil {
		return err
	}

	c.x.sent = c.x.sent || isEvent

	return nil
}

// ended decides after the end of the backend's stream.
func (c *eventCopy) ended(ctx context.Context, err error) step {
	x := c.x

	switch {
	case ctx.Err() != nil:
		if c.final {
			return done
		}

		return x.clientLeft()
	case c.final:
		return done
	case errors.Is(err, io.EOF) && x.requests == 0: // some servers send notices where 202 was to come
		x.accept()
		return done
	case errors.Is(err, io.EOF) && c.lastID != "" && x.sess != nil && !x.init:
		// The backend wants to be polled for the rest (MCP 2025-11-25 "Sending
		// Messages to the Server").
		x.sess.expect(c.lastID, x.unanswered())
		x.outcome = outcomeOK
		_ = c.begin()

		return done
	case errors.Is(err, errEventTooLarge):
		x.srv.logger.Warn("the backend sent an event that is larger than allowed", "limit_bytes", maxEvent)
		return x.fail(interruptedFailure(ReasonBackend, !x.onlyReads()))
	default:
		return x.interrupted("stream_ended")
	}
}

// unanswered are the requests that have no response yet.
func (x *exchange) unanswered() [][]byte {
	var ids [][]byte

	for i := range x.env.messages {
		if m := &x.env.messages[i]; m.kind == kindRequest && !x.isAnswered(m.id) {
			ids = append(ids, slices.Clone(m.id))
		}
	}

	return ids
}
