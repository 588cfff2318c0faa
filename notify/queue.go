package notify

import (
	"slices"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// place is where a conversation is in the queue.
type place int

const (
	placeQueued  place = iota + 1 // waits for its turn in its lane
	placeRunning                  // is being refreshed
	placeBlocked                  // waits for one of its servers to be ready
	placeHeld                     // is said to be gone; waits for the lane's verdict
)

// queue holds the ids of conversations that need a refresh, each at most once:
// one lane per agent server, first come first served, and the lanes take turns.
// It is safe for concurrent use.
type queue struct {
	mu      sync.Mutex
	limit   int // refreshes at once in all
	busy    int // refreshes that hold a worker
	places  map[conversation.ID]place
	lanes   map[string]*lane
	turns   []*lane // every lane; the one at index turn is next
	turn    int
	blocked map[conversation.ID]blocked
	awaited map[string]int           // how many blocked conversations wait for a server
	ended   map[conversation.ID]bool // whose turn ended since beginScan
}

// blocked is a conversation that waits for one of the servers.
type blocked struct {
	lane    string
	servers []string
}

func newQueue(limit int) *queue {
	return &queue{
		limit:   limit,
		places:  map[conversation.ID]place{},
		lanes:   map[string]*lane{},
		blocked: map[conversation.ID]blocked{},
		awaited: map[string]int{},
		ended:   map[conversation.ID]bool{},
	}
}

// setLanes replaces the lanes. Those that stay keep what waits in them; what
// waits in others is forgotten. It returns the clients that are no longer used.
func (q *queue) setLanes(lanes []*lane) (unused []refresher) {
	q.mu.Lock()
	defer q.mu.Unlock()
	old := q.lanes
	q.lanes = make(map[string]*lane, len(lanes))
	q.turns, q.turn = nil, 0
	for _, l := range lanes {
		if o := old[l.name]; o != nil {
			delete(old, l.name)
			unused = append(unused, o.replace(l))
			l = o
		}
		q.lanes[l.name] = l
		q.turns = append(q.turns, l)
	}
	for _, l := range old {
		unused = append(unused, l.client)
		q.abandon(l)
	}

	return unused
}

// abandon forgets what waits in a lane that is no longer there.
func (q *queue) abandon(l *lane) {
	for _, id := range l.waiting {
		delete(q.places, id)
	}
	for _, g := range l.gone {
		delete(q.places, g.attempt.id)
	}
	l.waiting, l.gone = nil, nil
	for id, b := range q.blocked {
		if b.lane == l.name {
			q.unset(id)
		}
	}
}

// putLane adds a lane, or replaces the client of the one that has its name and
// returns the old one.
func (q *queue) putLane(l *lane) (unused refresher) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if o := q.lanes[l.name]; o != nil {
		return o.replace(l)
	}
	q.lanes[l.name] = l
	q.turns = append(q.turns, l)

	return nil
}

// dropLane takes the lane of that name out and returns its client, nil if there
// is none.
func (q *queue) dropLane(name string) (unused refresher) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := q.lanes[name]
	if l == nil {
		return nil
	}
	delete(q.lanes, name)
	q.turns = slices.DeleteFunc(q.turns, func(o *lane) bool { return o == l })
	q.abandon(l)

	return l.client
}

// beginScan comes before the registry is asked what is due, see has.
func (q *queue) beginScan() {
	q.mu.Lock()
	defer q.mu.Unlock()
	clear(q.ended)
}

// has tells whether the conversation is in the queue, and whether it left it
// since beginScan: then that it was due may be old news.
func (q *queue) has(id conversation.ID) (queued, ended bool) {
	q.mu.Lock()
	defer q.mu.Unlock()

	return q.places[id] != 0, q.ended[id]
}

// add puts a conversation at the end of a lane, unless it is in the queue
// already or there is no such lane.
func (q *queue) add(id conversation.ID, laneName string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.enqueue(id, q.lanes[laneName])
}

func (q *queue) enqueue(id conversation.ID, l *lane) {
	if l == nil || q.places[id] != 0 {
		return
	}
	q.places[id] = placeQueued
	l.waiting = append(l.waiting, id)
}

// block sets a conversation that isn't in the queue, or is running, aside until
// one of the servers is ready.
func (q *queue) block(id conversation.ID, laneName string, servers []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p := q.places[id]; (p != 0 && p != placeRunning) || q.lanes[laneName] == nil {
		return
	}
	q.places[id] = placeBlocked
	q.blocked[id] = blocked{lane: laneName, servers: servers}
	for _, s := range servers {
		q.awaited[s]++
	}
}

// unblock puts the conversations whose servers have become ready into their
// lanes. It asks about each server once.
func (q *queue) unblock(ready func(server string) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var is []string
	for s := range q.awaited {
		if ready(s) {
			is = append(is, s)
		}
	}
	if len(is) == 0 {
		return
	}
	for id, b := range q.blocked {
		if slices.ContainsFunc(b.servers, func(s string) bool { return slices.Contains(is, s) }) {
			q.unset(id)
			q.enqueue(id, q.lanes[b.lane])
		}
	}
}

// unset takes a blocked conversation out of the queue.
func (q *queue) unset(id conversation.ID) {
	for _, s := range q.blocked[id].servers {
		if q.awaited[s]--; q.awaited[s] == 0 {
			delete(q.awaited, s)
		}
	}
	delete(q.blocked, id)
	delete(q.places, id)
}

// taken is a conversation whose turn it is; whoever has it owes the queue a
// release and a done.
type taken struct {
	id     conversation.ID
	lane   *lane
	label  string    // of the lane
	client refresher // of the lane
}

// take returns the next conversation that may be refreshed now. Lanes take turns.
func (q *queue) take(now time.Time) (taken, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy >= q.limit {
		return taken{}, false
	}
	for range q.turns {
		l := q.turns[q.turn%len(q.turns)]
		q.turn = (q.turn + 1) % len(q.turns)
		limit := l.limit
		if l.dead() {
			limit = 1
			q.sendScout(l, now)
		}
		if len(l.waiting) == 0 || l.running >= limit {
			continue
		}
		id := l.waiting[0]
		l.waiting = l.waiting[1:]
		q.places[id] = placeRunning
		l.running++
		l.active++
		q.busy++

		return taken{id: id, lane: l, label: l.label, client: l.client}, true
	}

	return taken{}, false
}

// release ends the call of a taken conversation, so that the lane can go on
// while the record is written.
func (q *queue) release(l *lane) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.running--
}

// done ends the turn of a taken conversation. It returns the conversations of
// the lane that are said to be gone, once it is known what to believe: when
// another one got an answer, or the lane is empty.
func (q *queue) done(t taken) (gone []goner, answered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l := t.lane
	q.busy--
	l.active--
	q.ended[t.id] = true
	if q.places[t.id] == placeRunning {
		delete(q.places, t.id)
	}
	empty := l.active == 0 && len(l.waiting) == 0
	answered = l.answered
	if empty || answered {
		gone, l.gone = l.gone, nil
	}
	if empty {
		l.answered, l.warned = false, ""
	}

	return gone, answered
}

// depth returns how many conversations wait, how many are being refreshed, and
// how many of the waiting wait for a server.
func (q *queue) depth() (waiting, busy, blocked int) {
	q.mu.Lock()
	defer q.mu.Unlock()

	return len(q.places) - q.busy, q.busy, len(q.blocked)
}
