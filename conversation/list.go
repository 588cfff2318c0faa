package conversation

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

const (
	defaultLimit = 100
	maxLimit     = 1000
)

// statsAge is how old the counts may be.
const statsAge = stamp(time.Second)

// Get returns a conversation, or ErrNotFound.
func (r *Registry) Get(id ID) (View, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		return View{}, ErrNotFound
	}
	return r.view(e, r.clock.now()), nil
}

// Query selects conversations; empty fields select all.
type Query struct {
	State       State
	Server      string
	AgentServer string
	Source      Source
	Cursor      string // Page.Next of the page before
	Limit       int    // 100 if it is 0 or less, 1000 at most
}

// Page is a part of a list.
type Page struct {
	Items []View `json:"items"`
	Next  string `json:"next,omitempty"` // cursor of the next page, "" on the last one
}

// List returns conversations ordered by id. A cursor stays valid whatever is added or removed meanwhile. The error is always nil.
func (r *Registry) List(q Query) (Page, error) {
	limit := q.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	limit = min(limit, maxLimit)
	page := Page{Items: []View{}}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.clock.now()
	at := r.clock.stamp(now)
	i, found := slices.BinarySearchFunc(r.order, ID(q.Cursor), func(e *entry, id ID) int { return cmp.Compare(e.id, id) })
	if found {
		i++
	}
	for _, e := range r.order[i:] {
		if q.AgentServer != "" && e.agent.name != q.AgentServer ||
			q.Source != "" && e.source != q.Source ||
			q.Server != "" && e.binding(q.Server) == nil ||
			q.State != "" && r.state(e, at) != q.State {
			continue
		}
		if len(page.Items) == limit {
			page.Next = string(page.Items[limit-1].ID)
			break
		}
		page.Items = append(page.Items, r.view(e, now))
	}
	return page, nil
}

// stats is what the metrics need, for the configured agent servers.
type stats struct {
	at     stamp
	counts map[string]map[State]int
	oldest map[string]time.Time // zero when nothing is stale
}

// currentStats counts, unless that was done just now. mu is held.
func (r *Registry) currentStats() *stats {
	now := r.clock.now()
	at := r.clock.stamp(now)
	if r.stats != nil && at-r.stats.at < statsAge && at >= r.stats.at {
		return r.stats
	}
	s := &stats{
		at:     at,
		counts: make(map[string]map[State]int, len(r.cfg.AgentServers)),
		oldest: make(map[string]time.Time, len(r.cfg.AgentServers)),
	}
	for _, a := range r.agents {
		if !a.configured {
			continue
		}
		s.oldest[a.name] = time.Time{}
		s.counts[a.name] = make(map[State]int)
		for _, state := range States() {
			s.counts[a.name][state] = 0
		}
	}
	for _, e := range r.order {
		if !e.agent.configured {
			continue
		}
		agent := e.agent.name
		state := r.state(e, at)
		s.counts[agent][state]++
		if state == StateStale || state == StateFailed {
			since := r.staleSince(e, now)
			if oldest := s.oldest[agent]; oldest.IsZero() || since.Before(oldest) {
				s.oldest[agent] = since
			}
		}
	}
	r.stats = s
	return s
}

// Counts returns the number of conversations by agent server and by state, zeros included, for the configured agent servers. It may be up to a
// second old.
func (r *Registry) Counts() map[string]map[State]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	counts := make(map[string]map[State]int)
	for agent, byState := range r.currentStats().counts {
		counts[agent] = maps.Clone(byState)
	}
	return counts
}

// OldestStale returns since when the conversation that is stale or failed for longest is so; zero when none is. It may be up to a second old.
func (r *Registry) OldestStale() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	var oldest time.Time
	for _, t := range r.currentStats().oldest {
		if oldest.IsZero() || !t.IsZero() && t.Before(oldest) {
			oldest = t
		}
	}
	return oldest
}
