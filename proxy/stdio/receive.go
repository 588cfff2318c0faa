package stdio

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mark3labs/mcp-go/mcp"
)

// Methods on which the bridge acts.
const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodProgress    = "notifications/progress"
	methodUpdated     = "notifications/resources/updated"
	methodListen      = "subscriptions/listen"
	methodPing        = "ping"
)

// receive takes what the process wrote in one line.
func (p *process) receive(l []byte) {
	messages, _, err := readMessages(l)
	if err != nil {
		p.nonsense.Do(func() {
			p.log.Warn("the stdio server wrote something else than JSON-RPC to stdout", "err", err, "bytes", len(l))
		})
		return
	}

	p.spoke.Do(func() { p.b.spoke(p) })

	for i := range messages {
		switch m := &messages[i]; m.kind {
		case kindResponse:
			p.answer(m)
		case kindRequest:
			p.ask(*m)
		case kindNotification:
			p.notify(*m)
		}
	}
}

// answer passes a response on to who waits for it.
func (p *process) answer(m *message) {
	// A response without an id that it was given belongs to nobody.
	wire, err := strconv.ParseInt(string(m.id.of(m.raw)), 10, 64)

	p.mu.Lock()
	pd := p.drop(wire)
	first := pd != nil && pd.x != nil && !p.proved
	p.proved = p.proved || first
	p.mu.Unlock()

	switch {
	case err != nil || pd == nil:
		p.log.Debug("the stdio server answered a request that nobody waits for")
		return
	case pd.call != nil:
		if p.owner == nil && m.failure.absent() {
			p.say([]byte(`{"jsonrpc":"2.0","method":"` + methodInitialized + `"}`))
		}

		pd.call.answer = *m
		close(pd.call.done)

		return
	}

	if first {
		p.b.proved(p)
	}

	edits := []edit{{m.id, pd.id}}
	if pd.listen {
		edits = append(edits, edit{find(m.raw, m.result, "_meta", mcp.MetaKeySubscriptionID), pd.id})
	}

	pd.x.deliver(splice(m.raw, edits...), true)
}

// ask passes on a request of the process.
func (p *process) ask(m message) {
	if p.owner == nil {
		p.answerSelf(&m)
		return
	}

	p.tell(m)
}

// answerSelf answers a request of the process that reaches no client.
func (p *process) answerSelf(m *message) {
	id := m.id.of(m.raw)

	switch {
	case m.method == methodPing:
		p.say([]byte(`{"jsonrpc":"2.0","id":` + string(id) + `,"result":{}}`))
	case p.owner == nil:
		p.say(errorMessage(id, codeNoMethod, "Method not found"))
	default:
		p.say(errorMessage(id, codeInternal, "The client has no stream open"))
	}
}

// tell passes a message on to the only session that there is.
func (p *process) tell(m message) {
	for _, old := range p.owner.tell(m, p.oldest(p.owner)) {
		if old.kind == kindRequest {
			p.answerSelf(&old)
			continue
		}

		p.log.Debug("a message was dropped, its client has no stream open", "method", old.method)
	}
}

// oldest returns the longest running exchange of a session that takes events, or
// nil.
func (p *process) oldest(s *session) *exchange {
	p.mu.Lock()
	defer p.mu.Unlock()

	var (
		oldest *exchange
		id     int64
	)

	for wire, pd := range p.pending {
		if pd.x != nil && pd.session == s && (oldest == nil || wire < id) && pd.x.takesEvents() {
			oldest, id = pd.x, wire
		}
	}

	return oldest
}

// notify passes on a notification of the process.
func (p *process) notify(m message) {
	if m.method == methodProgress && p.progress(&m) || p.owner == nil && p.subscribed(&m) {
		return
	}

	switch {
	case p.owner != nil:
		p.tell(m)
	case m.method == methodUpdated || strings.HasSuffix(m.method, "/list_changed"):
		for _, s := range p.b.sessionsOf(p) {
			m.raw = slices.Clone(m.raw)
			s.tell(m, p.oldest(s))
		}
	default:
		if x := p.only(); x == nil || !x.deliver(m.raw, false) {
			p.log.Debug("a message of the shared stdio server was dropped, it could belong to several requests", "method", m.method)
		}
	}
}

// progress passes progress on to the request that it is about. It returns false if
// that isn't known: it may be about a task, which goes on after its request.
func (p *process) progress(m *message) bool {
	at := m.param("progressToken")
	if at.absent() {
		return false
	}

	p.mu.Lock()
	pd := p.pending[p.tokens[idKey(at.of(m.raw))]]
	p.mu.Unlock()

	if pd == nil || pd.x == nil {
		return p.owner == nil // then it can't belong to anybody else
	}

	if p.owner == nil {
		if pd.x.takesEvents() {
			pd.x.deliver(splice(m.raw, edit{at, pd.token}), false)
		}

		return true
	}

	return pd.x.isGone() || pd.x.takesEvents() && pd.x.deliver(m.raw, false)
}

// subscribed passes a notification on to the subscription that it names (MCP
// 2026-07-28 "Subscriptions"). It returns false if it names none.
func (p *process) subscribed(m *message) bool {
	at := m.param("_meta", mcp.MetaKeySubscriptionID)
	if at.absent() {
		return false
	}

	wire, err := strconv.ParseInt(string(at.of(m.raw)), 10, 64)

	p.mu.Lock()
	pd := p.pending[wire]
	p.mu.Unlock()

	if err == nil && pd != nil && pd.listen {
		pd.x.deliver(splice(m.raw, edit{at, pd.id}), false)
	}

	return true
}

// only returns the exchange that runs, if it is just one and takes events.
func (p *process) only() *exchange {
	p.mu.Lock()
	defer p.mu.Unlock()

	var only *exchange

	for _, pd := range p.pending {
		switch {
		case pd.x == nil || pd.listen || pd.x == only:
		case only != nil:
			return nil
		default:
			only = pd.x
		}
	}

	if only == nil || !only.takesEvents() {
		return nil
	}

	return only
}

// fail ends everything that waits for the process: it says nothing any more.
func (p *process) fail() {
	p.mu.Lock()

	if p.dead {
		p.mu.Unlock()
		return
	}

	p.dead = true
	left := p.pending
	p.pending = map[int64]*pending{}
	asked, proved := p.asked, p.proved
	p.mu.Unlock()

	sessions, pause := p.b.gone(p, !asked && !proved)

	p.mu.Lock()
	p.pause = pause
	p.mu.Unlock()

	close(p.gone)

	began := map[*exchange]bool{}

	for _, pd := range left {
		if pd.call != nil {
			pd.call.err = errBroken
			close(pd.call.done)

			continue
		}

		// What was answered, or cancelled, of a batch has begun too.
		began[pd.x] = pd.x.begun > 0
	}

	for x, some := range began {
		if some {
			x.fail(errBroken)
		} else {
			x.fail(errGone)
		}
	}

	end := io.ErrUnexpectedEOF
	if asked {
		end = io.EOF
	}

	for _, s := range sessions {
		s.end(end)
	}

	if p.owner == nil && !asked {
		p.b.onSwap()
	}
}
