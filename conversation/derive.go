package conversation

import (
	"time"
)

// historyLength is how many generations of a server are remembered to tell since when a conversation is stale.
const historyLength = 64

// offer is what a server offers, and since when it has offered something else than before.
type offer struct {
	Generation
	settled []settled // oldest first; the last is the present one
	saved   bool      // the store has it
}

type settled struct {
	number uint64
	at     int64 // see nanos
}

// since returns when what a conversation has was first replaced: the given generation or, where that is 0, what there was when it was created.
func (o *offer) since(applied uint64, created int64) int64 {
	for _, s := range o.settled {
		if s.number > applied && (applied != 0 || s.at > created) {
			return s.at
		}
	}
	return nanos(o.At)
}

// stale tells whether the conversation has something else than o, or may have. mu is held.
func (r *Registry) stale(e *entry, b *binding, o *offer) bool {
	switch {
	case o == nil:
		return false
	case b.how == HowLost:
		return true
	case b.generation != 0:
		return b.generation != o.Number
	default:
		return !createdAfter(e, o, r.cfg.ClockSkew)
	}
}

// createdAfter tells whether the conversation was created when o had settled, so that it can't have anything older.
func createdAfter(e *entry, o *offer, skew time.Duration) bool {
	return e.created != 0 && e.created > nanos(o.At)+int64(skew)
}

// needs tells whether the conversation should be refreshed, be it now or later. mu is held.
func (r *Registry) needs(e *entry) bool {
	if e.forced {
		return true
	}
	for i := range e.bindings {
		b := &e.bindings[i]
		if r.stale(e, b, b.server.offers()) {
			return true
		}
	}
	return false
}

// idle tells whether the agent server has forgotten the conversation's tools. Where no activity can be seen, nothing can be said. mu is held.
func idle(e *entry, now stamp) bool {
	after := e.agent.idleAfter
	return after > 0 && e.active != 0 && time.Duration(now-e.active) >= after
}

// state derives the state. mu is held.
func (r *Registry) state(e *entry, now stamp) State {
	switch {
	case !r.needs(e):
		return StateCurrent
	case !e.forced && idle(e, now):
		return StateDormant
	}
	switch e.condition {
	case ConditionFailed:
		return StateFailed
	case ConditionParked:
		return StateParked
	case ConditionUnsupported:
		return StateUnsupported
	default:
		return StateStale
	}
}

// staleSince derives since when a conversation that needs a refresh does, and could have got it. mu is held.
func (r *Registry) staleSince(e *entry, now time.Time) time.Time {
	var since int64
	earliest := func(at int64) {
		if since == 0 || at < since {
			since = at
		}
	}
	if e.forced {
		earliest(e.forcedAt)
	}
	for i := range e.bindings {
		b := &e.bindings[i]
		o := b.server.offers()
		switch {
		case !r.stale(e, b, o):
		case b.how == HowLost:
			earliest(b.at)
		default:
			earliest(max(o.since(b.generation, e.created), e.registered))
		}
	}
	if e.woken != 0 && !e.forced {
		since = max(since, nanos(r.clock.time(e.woken, now)))
	}
	if e.resumed != 0 { // before, there was nobody to refresh it
		since = max(since, nanos(r.clock.time(e.resumed, now)))
	}
	return fromNanos(since)
}

// dueAt derives when the next attempt is due. mu is held.
func (r *Registry) dueAt(e *entry, now stamp) stamp {
	if !e.agent.callable(e.url) || !r.needs(e) || !offered(e) {
		return never
	}
	if !e.forced && idle(e, now) {
		return never
	}
	at := never
	switch {
	case e.condition == ConditionNone,
		e.condition == ConditionUnsupported && r.untried(e),
		e.condition == ConditionFailed && e.next == 0 && r.untried(e):
		at = dueNow
	case e.next != 0:
		at = e.next
	}
	if e.woken != 0 && !e.forced { // it may be listing its tools just now
		at = max(at, e.woken+stamp(r.cfg.RebuildGrace))
	}
	return at
}

// offered tells whether there is anything to refresh the conversation to. mu is held.
func offered(e *entry) bool {
	for i := range e.bindings {
		if e.bindings[i].server.offers() != nil {
			return true
		}
	}
	return false
}

// untried tells whether a server of the conversation has a newer generation than the one that the last attempt was for. mu is held.
func (r *Registry) untried(e *entry) bool {
	for i := range e.bindings {
		b := &e.bindings[i]
		if o := b.server.offers(); o != nil && b.tried != 0 && b.tried < o.Number && r.stale(e, b, o) {
			return true
		}
	}
	return false
}

// expiry returns when the registration ends without a sign of life, never if it doesn't. mu is held.
func (r *Registry) expiry(e *entry) stamp {
	ttl := r.life(e)
	if ttl == 0 {
		return never
	}
	return later(e.renewed, e.active) + stamp(ttl)
}

// life is how long the registration lives without a sign of life, 0 for good. mu is held.
func (r *Registry) life(e *entry) time.Duration {
	if e.ttl == 0 && !e.source.byOperator() {
		return r.cfg.TTL
	}
	return e.ttl
}

// view returns everything that is known of a conversation. mu is held.
func (r *Registry) view(e *entry, now time.Time) View {
	v := View{
		Conversation: e.conversation(r.clock, now),
		State:        r.state(e, r.clock.stamp(now)),
		Servers:      make(map[string]ServerView, len(e.bindings)),
	}
	if v.State != StateCurrent {
		v.StaleSince = r.staleSince(e, now)
	}
	if at := r.expiry(e); at != never {
		v.ExpiresAt = r.clock.time(at, now)
	}
	for i := range e.bindings {
		b := &e.bindings[i]
		s := ServerView{
			Applied: b.generation, AppliedHash: b.hash, How: b.how, AppliedAt: fromNanos(b.at),
			Mapped: b.mapped, Current: true,
		}
		if o := b.server.offers(); o != nil {
			s.Desired, s.DesiredHash = o.Number, o.Hash
			s.Current = !r.stale(e, b, o)
			if s.How == HowNone && s.Current {
				s.Applied, s.AppliedHash, s.How, s.AppliedAt = o.Number, o.Hash, HowCreated, fromNanos(e.created)
			}
		}
		v.Servers[b.server.name] = s
	}
	return v
}
