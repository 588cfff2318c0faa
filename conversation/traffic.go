package conversation

import (
	"time"
)

// clockSlack is how much the times that the proxy notes for one request may be out of order.
const clockSlack = stamp(time.Second)

// maxSighted bounds how many conversations may be known before traffic registers no more of them.
const maxSighted = 250_000

// Sighting is a request that names the conversation it belongs to.
type Sighting struct {
	ID          ID
	AgentServer string // "" is the one it has, else the only configured one, or "default"
	AgentURL    string // which one, where AgentServer stands for several; it doesn't change the one that is known
	AgentKey    Key    // of the agent server, where it came with the request; not for the Registry
	Server      string
	Source      Source // url or header
}

// Seen notes traffic of a conversation: it registers or renews, and never waits for the store.
func (r *Registry) Seen(s Sighting) {
	now := r.clock.stamp(r.clock.now())
	r.mu.Lock()
	defer r.mu.Unlock()
	to, err := r.configuredServer(s.Server)
	if err != nil {
		r.metrics.registrations.WithLabelValues(resultRejected).Inc()
		return
	}
	e := r.entries[s.ID]
	if e == nil {
		r.sight(s, to, now)
		return
	}
	if s.AgentServer != "" && !r.adopt(e, s) {
		r.metrics.registrations.WithLabelValues(resultRejected).Inc()
		return
	}
	b, added := e.bind(to)
	b.mapped = true
	if added {
		e.woken = now
		r.changedInMemory(e)
	}
	r.wake(e, now, now)
}

// sight registers a conversation because of its traffic. What it has is unknown: if it lists its tools now, it has been told them, else it is
// refreshed. mu is held.
func (r *Registry) sight(s Sighting, to *server, now stamp) {
	if gone, ok := r.removed[s.ID]; ok && now < gone.until {
		return
	}
	id, err := ParseID(string(s.ID))
	agent, agentErr := r.configuredAgentServer(s.AgentServer)
	url := ""
	if agentErr == nil {
		url, agentErr = agent.locate(s.AgentURL)
	}
	if err != nil || id != s.ID || agentErr != nil || len(r.entries) >= maxSighted {
		r.metrics.registrations.WithLabelValues(resultRejected).Inc()
		return
	}
	e := &entry{
		id: id, agent: agent, url: url, source: s.Source,
		registered: nanos(r.clock.now()), renewed: now, active: now, woken: now,
		pos: -1,
	}
	b, _ := e.bind(to)
	b.mapped = true
	delete(r.removed, id)
	r.insert(e)
	r.changedInMemory(e)
	r.metrics.registrations.WithLabelValues(resultCreated).Inc()
}

// adopt tells whether the agent server that traffic of a conversation names can be its own. One whose agent server is no longer configured, or
// isn't known whole, gets the one that is named. mu is held.
func (r *Registry) adopt(e *entry, s Sighting) bool {
	to := r.agents[s.AgentServer]
	if to == e.agent && to.callable(e.url) {
		return true
	}
	if to == nil || !to.configured || to != e.agent && e.agent.configured {
		return false
	}
	url, err := to.locate(s.AgentURL)
	if err != nil {
		return false
	}
	e.agent, e.url = to, url
	r.changedInMemory(e)
	return true
}

// wake notes a sign of activity at a moment. It makes a dormant conversation stale again, and brings forward the attempt for a parked one. mu
// is held.
func (r *Registry) wake(e *entry, at, now stamp) {
	slept := !e.forced && idle(e, now) && r.needs(e)
	e.active = later(e.active, at)
	r.touch(e)
	switch {
	case slept:
		e.woken = at
		r.reindex(e)
	case e.condition == ConditionParked:
		next := now
		if e.lastError != nil {
			next = max(next, r.clock.stamp(e.lastError.At)+stamp(r.cfg.ParkedGrace))
		}
		if e.next == 0 || next < e.next {
			e.next = next
			r.reindex(e)
		}
	}
}

// touch has Run write the signs of life. mu is held.
func (r *Registry) touch(e *entry) {
	if !e.touched {
		e.touched = true
		r.touched = append(r.touched, e.id)
	}
}

// Listing is a tools/list of a conversation that was answered.
type Listing struct {
	ID           ID
	Server       string
	Generation   uint64 // settled generation when the list began, 0 while unsettled
	Began, Ended time.Time
	Complete     bool // reached the last page, from one process
}

// Listed notes a listing. It never waits for the store. By itself it doesn't change what the conversation is known to have, since some agent
// servers list for their own caches; but it does where nothing else can tell (no refresh action, and only one server), and where the
// conversation was unknown or dormant, so that it has just built its tools from this.
func (r *Registry) Listed(l Listing) {
	if !l.Complete || l.Generation == 0 {
		return
	}
	r.listed(l)
	if r.shared != nil {
		r.sharing.add(l)
	}
}

func (r *Registry) listed(l Listing) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[l.ID]
	if e == nil {
		return
	}
	b := e.binding(l.Server)
	if b == nil {
		return
	}
	b.mapped = true
	began := r.clock.stamp(l.Began)
	if l.Generation > b.listed || l.Generation == b.listed && began > b.listedAt {
		b.listed, b.listedAt = l.Generation, began
	}

	o := b.server.offers()
	if o == nil || o.Number != l.Generation || !r.stale(e, b, o) {
		return
	}
	built := e.woken != 0 && began >= e.woken-clockSlack && began < e.woken+stamp(r.cfg.RebuildGrace)
	alone := e.condition == ConditionUnsupported && len(e.bindings) == 1
	if !built && !alone {
		return
	}
	b.apply(Applied{Generation: o.Number, Hash: o.Hash, How: HowObserved, At: l.Ended})
	if !r.needs(e) {
		e.woken = 0
		e.condition, e.attempts, e.lastError, e.next, b.tried = ConditionNone, 0, nil, 0, 0
	}
	r.changedInMemory(e)
}

// Observed tells whether the conversation completely listed generation (or a newer one) of the server in a listing that began at or after since.
func (r *Registry) Observed(id ID, server string, since time.Time, generation uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		return false
	}
	b := e.binding(server)
	return b != nil && b.listed != 0 && b.listed >= generation && b.listedAt >= r.clock.stamp(since)
}

// Mapped tells whether traffic of the conversation for the server was seen since the registry was made, so that a listing of it would be seen
// too. With several replicas that can't be said for a while after something that they told may have been missed.
func (r *Registry) Mapped(id ID, server string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.shared != nil && (r.sharing.deaf || r.clock.stamp(r.clock.now()) < r.sharing.heardSince+deafness) {
		return false
	}
	e := r.entries[id]
	if e == nil {
		return false
	}
	b := e.binding(server)
	return b != nil && b.mapped
}

// SessionLost notes that a session of the conversation could not be carried across a swap: it is refreshed even if the tools are the same. It
// never waits for the store. Unknown conversations are ignored.
func (r *Registry) SessionLost(id ID, server string) {
	now := r.clock.now()
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	s, err := r.configuredServer(server)
	if e == nil || err != nil {
		return
	}
	b, _ := e.bind(s)
	b.apply(Applied{How: HowLost, At: now})
	e.woken = 0
	if e.next == 0 { // not tried again until something changes: this does
		e.condition = ConditionNone
	}
	r.changedInMemory(e)
}
