package stdio

import (
	"context"
	"strconv"
)

// send passes messages on to the process, in order. x is the exchange of the
// requests among them, and s their session; both may be nil. The error is errGone
// when the process takes them no more, or that of the context. If it ends later, x
// knows.
func (p *process) send(ctx context.Context, s *session, x *exchange, messages []message) error {
	out, err := p.enlist(s, x, messages)
	if err != nil {
		return err
	}

	for i := range out {
		select {
		case p.lines <- out[i]:
		case <-p.gone:
			if x == nil {
				return errGone
			}

			return nil
		case <-ctx.Done():
			if x != nil {
				x.leave()
			}

			for _, o := range out[i:] {
				p.forget(o.wire)
			}

			return ctx.Err() //nolint:wrapcheck // net/http does the same
		}
	}

	return nil
}

// enlist gives requests their ids and takes note of who waits for them.
func (p *process) enlist(s *session, x *exchange, messages []message) ([]outgoing, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.closed || p.dead || p.retired && x != nil {
		return nil, errGone
	}

	out := make([]outgoing, 0, len(messages))

	for i := range messages {
		m := &messages[i]

		switch {
		case m.kind == kindRequest:
			pd := &pending{x: x, session: s, id: m.id.of(m.raw), listen: m.method == methodListen}
			out = append(out, p.request(m, pd))
		case m.method == methodCancelled:
			if o, ok := p.cancellation(s, m); ok {
				out = append(out, o)
			}
		case p.owner == nil && (m.kind == kindResponse || m.method == methodInitialized):
			// The process asked nothing, and was told by the bridge.
		default:
			out = append(out, outgoing{line: line(splice(m.raw))})
		}
	}

	return out, nil
}

// request gives a request its id and its progress token. The caller holds the lock.
func (p *process) request(m *message, pd *pending) outgoing {
	p.next++
	wire := p.next
	number := strconv.AppendInt(nil, wire, 10)
	edits := []edit{{m.id, number}}

	if at := m.token(); !at.absent() {
		pd.token = at.of(m.raw)
		pd.key = idKey(pd.token)

		if p.owner == nil {
			edits = append(edits, edit{at, number})
			pd.key = string(number)
		}

		p.tokens[pd.key] = wire
	}

	p.pending[wire] = pd

	return outgoing{line: line(splice(m.raw, edits...)), wire: wire, x: pd.x}
}

// cancellation translates a notifications/cancelled, whose request gets no answer
// then. It returns false if there is nothing to cancel. The caller holds the lock.
func (p *process) cancellation(s *session, m *message) (outgoing, bool) {
	at := m.param("requestId")
	if at.absent() {
		return outgoing{}, false
	}

	want := idKey(at.of(m.raw))

	for wire, pd := range p.pending {
		if pd.x != nil && pd.session == s && idKey(pd.id) == want {
			p.drop(wire)
			pd.x.cancel()

			return outgoing{line: line(splice(m.raw, edit{at, strconv.AppendInt(nil, wire, 10)}))}, true
		}
	}

	return outgoing{}, false
}

// abandon cancels the requests of an exchange whose client left, which in protocol
// revision 2026-07-28 means that.
func (p *process) abandon(x *exchange) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for wire, pd := range p.pending {
		if pd.x == x {
			p.drop(wire)

			if pd.written {
				p.say([]byte(`{"jsonrpc":"2.0","method":"` + methodCancelled + `","params":{"requestId":` + strconv.FormatInt(wire, 10) + `}}`))
			}
		}
	}
}

// initialize sends an initialize of the bridge's, once, and returns what becomes of
// it. It is the first message to the process, or nearly so, and doesn't block.
func (p *process) initialize(m *message) *call {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.init != nil {
		return p.init
	}

	c := &call{done: make(chan struct{})}

	if p.dead {
		c.err = errBroken
		close(c.done)

		return c
	}

	o := p.request(m, &pending{call: c})

	select {
	case p.lines <- o:
		p.init = c
	default: // it is shared, and doesn't read what others send
		p.drop(o.wire)

		c.err = errBroken
		close(c.done)
	}

	return c
}

// started reports whether an initialize of the bridge's, if there was one, is done.
func (p *process) started() bool {
	p.mu.Lock()
	c := p.init
	p.mu.Unlock()

	if c == nil {
		return true
	}

	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

// say sends a message of the bridge's own, unless the process is too far behind.
func (p *process) say(msg []byte) {
	select {
	case p.lines <- outgoing{line: line(msg)}:
	default:
		p.log.Debug("the stdio server doesn't read, a message to it was dropped")
	}
}

func (p *process) forget(wire int64) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.drop(wire)
}

// drop forgets a request and returns it. The caller holds the lock.
func (p *process) drop(wire int64) *pending {
	pd := p.pending[wire]
	if pd == nil {
		return nil
	}

	delete(p.pending, wire)

	if p.tokens[pd.key] == wire {
		delete(p.tokens, pd.key)
	}

	p.checkIdle()

	return pd
}

func (p *process) checkIdle() {
	if p.retired && len(p.pending) == 0 {
		select {
		case <-p.idle:
		default:
			close(p.idle)
		}
	}
}
