package conversation

import (
	"time"
	"unique"
)

// entry is a conversation in memory, in a form that takes about a third of a Conversation: there may be a hundred thousand. Guarded by
// Registry.mu.
type entry struct {
	id        ID
	agent     *agentServer
	url       string // which one, where agent is a pattern; interned, like the other strings here
	source    Source
	condition Condition
	bindings  []binding

	created, registered, forcedAt int64 // see nanos
	renewed, active, next         stamp
	woken                         stamp // since when it is active after it was unknown or dormant, until that is dealt with
	resumed                       stamp // since when it isn't parked any more, until that is dealt with
	renewedSaved, activeSaved     stamp // as the store has them
	ttl                           time.Duration

	lastError *Failure
	attempts  int
	revision  uint64 // of the store, 0 while it isn't there
	version   uint64 // moves on with each change in memory but signs of life

	round uint64 // of the comparison with a shared store that it was found in

	due stamp // place in the heap
	pos int   // index in the heap, -1 when it isn't there

	forced  bool
	dirty   bool // memory is ahead of the store
	touched bool // only the signs of life are ahead of the store
}

// binding is a conversation's relation to one server.
type binding struct {
	server *server
	hash   string
	how    How

	generation uint64 // applied
	at         int64  // since when, see nanos
	tried      uint64

	listed   uint64 // newest generation that it listed completely since the start
	listedAt stamp  // when the last listing of that one began
	mapped   bool   // its traffic came through here since the start
}

func intern(s string) string { return unique.Make(s).Value() }

func (e *entry) binding(server string) *binding {
	for i := range e.bindings {
		if e.bindings[i].server.name == server {
			return &e.bindings[i]
		}
	}
	return nil
}

// bind returns the binding to server, a new one if need be.
func (e *entry) bind(s *server) (b *binding, added bool) {
	if b := e.binding(s.name); b != nil {
		return b, false
	}
	e.bindings = append(e.bindings, binding{server: s})
	return &e.bindings[len(e.bindings)-1], true
}

// set takes over a stored value. What only memory knows stays, and signs of life never move back. mu is held.
func (r *Registry) set(e *entry, c Conversation) {
	clk := r.clock
	e.id, e.revision = c.ID, c.Revision
	e.agent, e.url = r.agentServerNamed(c.AgentServer), intern(c.AgentURL)
	e.source, e.condition = Source(intern(string(c.Source))), Condition(intern(string(c.Condition)))
	e.created, e.registered, e.forcedAt = nanos(c.CreatedAt), nanos(c.RegisteredAt), nanos(c.ForcedAt)
	e.renewed, e.active = later(e.renewed, clk.stamp(c.RenewedAt)), later(e.active, clk.stamp(c.LastActive))
	e.renewedSaved, e.activeSaved = clk.stamp(c.RenewedAt), clk.stamp(c.LastActive)
	e.next = clk.stamp(c.NextAttempt)
	e.ttl, e.attempts, e.forced = c.TTL, c.Attempts, c.Forced
	e.lastError = cloneFailure(c.LastError)

	old := e.bindings
	e.bindings = make([]binding, 0, len(c.Servers))
	for name, a := range c.Servers {
		b := binding{server: r.serverNamed(name)}
		for i := range old {
			if old[i].server == b.server {
				b = old[i]
			}
		}
		b.apply(a)
		b.tried = c.Tried[name]
		e.bindings = append(e.bindings, b)
	}
}

func (b *binding) apply(a Applied) {
	b.generation, b.hash, b.how, b.at = a.Generation, intern(a.Hash), How(intern(string(a.How))), nanos(a.At)
}

func (b *binding) applied() Applied {
	return Applied{Generation: b.generation, Hash: b.hash, How: b.how, At: fromNanos(b.at)}
}

// later is the later of two moments of which 0 is none.
func later(a, b stamp) stamp {
	if a == 0 || b != 0 && b > a {
		return b
	}
	return a
}

// conversation returns the value to store or show.
func (e *entry) conversation(clk clock, now time.Time) Conversation {
	c := Conversation{
		ID: e.id, AgentServer: e.agent.name, AgentURL: e.url, Source: e.source,
		Servers:      make(map[string]Applied, len(e.bindings)),
		CreatedAt:    fromNanos(e.created),
		RegisteredAt: fromNanos(e.registered),
		RenewedAt:    clk.time(e.renewed, now),
		LastActive:   clk.time(e.active, now),
		TTL:          e.ttl,
		Condition:    e.condition, Attempts: e.attempts, LastError: cloneFailure(e.lastError),
		NextAttempt: clk.time(e.next, now),
		Forced:      e.forced, ForcedAt: fromNanos(e.forcedAt),
		Revision: e.revision,
	}
	for i := range e.bindings {
		b := &e.bindings[i]
		c.Servers[b.server.name] = b.applied()
		if b.tried != 0 {
			if c.Tried == nil {
				c.Tried = make(map[string]uint64, 1)
			}
			c.Tried[b.server.name] = b.tried
		}
	}
	return c
}
