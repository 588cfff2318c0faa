package notify

import (
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// progress follows the refreshes of each server's newest generation, for one
// summary when all are done. It is safe for concurrent use.
type progress struct {
	mu      sync.Mutex
	servers map[string]*generationProgress
}

type generationProgress struct {
	generation uint64
	since      time.Time // when the first conversation became stale
	pending    map[conversation.ID]bool
	refreshed  int
	summed     bool // there was a summary already
}

// summary says that every conversation that needed a server's generation has it.
type summary struct {
	server     string
	generation uint64
	refreshed  int
	took       time.Duration
}

func newProgress() *progress {
	return &progress{servers: map[string]*generationProgress{}}
}

// expect notes that a conversation needs the desired generations of servers.
func (p *progress) expect(v conversation.View, servers []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range servers {
		if v.Servers[s].Current {
			continue // only asked for
		}
		desired := v.Servers[s].Desired
		g := p.servers[s]
		if g == nil || g.generation < desired {
			g = &generationProgress{generation: desired, pending: map[conversation.ID]bool{}}
			p.servers[s] = g
		}
		if g.generation > desired {
			continue
		}
		if !v.StaleSince.IsZero() && (g.since.IsZero() || v.StaleSince.Before(g.since)) {
			g.since = v.StaleSince
		}
		g.pending[v.ID] = true
	}
}

// leave notes that a conversation needs nothing more, and was refreshed or not.
// It returns the generations that are complete with it.
func (p *progress) leave(id conversation.ID, refreshed bool, now time.Time) []summary {
	p.mu.Lock()
	defer p.mu.Unlock()
	var done []summary
	for name, g := range p.servers {
		if !g.pending[id] {
			continue
		}
		delete(g.pending, id)
		if refreshed {
			g.refreshed++
		}
		if len(g.pending) == 0 && g.refreshed > 0 && !g.summed {
			g.summed = true
			done = append(done, summary{server: name, generation: g.generation, refreshed: g.refreshed, took: now.Sub(g.since)})
		}
	}

	return done
}
