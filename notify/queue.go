package notify

import (
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
}

// blocked is a conversation that waits for one of the servers.
type blocked struct {
	lane    string
	servers []string
}

// lane is the part of the queue that belongs to one agent server. The queue's
// lock guards it.
type lane struct {
	name    string
	client  refresher
	limit   int // refreshes at once
	running int // calls to the agent server
	active  int // conversations in placeRunning, their records included
	waiting []conversation.ID

	// unreachable counts the calls in a row that got no answer, since then. After a
	// few, the lane goes on with one call at a time, and after a while with one now
	// and then. The last one was at calledAt, and failed with lastErr.
	unreachable int
	since       time.Time
	calledAt    time.Time
	lastErr     *Error
	// parked are conversations that wait for the agent server to come back.
	parked map[conversation.ID]bool
	// answered says that since the lane was last empty some conversation got
	// another answer than 404; gone are those which got that.
	answered bool
	gone     []goner
	// warned is the last text that was logged as a warning since then.
	warned string
}

const (
	// unreachableLimit is the number of calls in a row without an answer after which
	// an agent server is taken for dead.
	unreachableLimit = 3
	// deadAfter is how long it must have been so before its conversations are parked
	// without a call each.
	deadAfter = 30 * time.Second
	// deadCallGap is how long after a call to a dead agent server the next one may
	// begin.
	deadCallGap = 15 * time.Second
)

func newQueue(limit int) *queue {
	return &queue{
		limit:   limit,
		places:  map[conversation.ID]place{},
		lanes:   map[string]*lane{},
		blocked: map[conversation.ID]blocked{},
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
			unused = append(unused, o.client)
			o.client, o.limit, o.unreachable = l.client, l.limit, 0
			l = o
		}
		q.lanes[l.name] = l
		q.turns = append(q.turns, l)
	}
	for _, l := range old {
		unused = append(unused, l.client)
		for _, id := range l.waiting {
			delete(q.places, id)
		}
		for _, g := range l.gone {
			delete(q.places, g.attempt.id)
		}
		l.waiting, l.gone = nil, nil
	}
	for id, b := range q.blocked {
		if q.lanes[b.lane] == nil {
			delete(q.blocked, id)
			delete(q.places, id)
		}
	}

	return unused
}

// has tells whether the conversation is anywhere in the queue.
func (q *queue) has(id conversation.ID) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	return q.places[id] != 0
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

// block sets a conversation aside until one of the servers is ready.
func (q *queue) block(id conversation.ID, laneName string, servers []string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.places[id] != 0 || q.lanes[laneName] == nil {
		return
	}
	q.places[id] = placeBlocked
	q.blocked[id] = blocked{lane: laneName, servers: servers}
}

// unblock puts the conversations whose servers have become ready into their
// lanes. Each server is asked about once.
func (q *queue) unblock(ready func(server string) bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.blocked) == 0 {
		return
	}
	known := map[string]bool{}
	for id, b := range q.blocked {
		for _, s := range b.servers {
			is, ok := known[s]
			if !ok {
				is = ready(s)
				known[s] = is
			}
			if is {
				delete(q.blocked, id)
				delete(q.places, id)
				q.enqueue(id, q.lanes[b.lane])

				break
			}
		}
	}
}

// take returns the next conversation that may be refreshed now and the client
// for it; the caller owes a release and a done. Lanes take turns.
func (q *queue) take() (conversation.ID, *lane, refresher, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy >= q.limit {
		return "", nil, nil, false
	}
	for range q.turns {
		l := q.turns[q.turn%len(q.turns)]
		q.turn = (q.turn + 1) % len(q.turns)
		limit := l.limit
		if l.unreachable >= unreachableLimit {
			limit = 1
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

		return id, l, l.client, true
	}

	return "", nil, nil, false
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
func (q *queue) done(id conversation.ID, l *lane) (gone []goner, answered bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy--
	l.active--
	if q.places[id] == placeRunning {
		delete(q.places, id)
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

// hold keeps a running conversation that is said to be gone in the queue until
// done returns it and the caller forgets it.
func (q *queue) hold(l *lane, g goner) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.lanes[l.name] != l {
		return // the agent server is no longer configured
	}
	q.places[g.attempt.id] = placeHeld
	l.gone = append(l.gone, g)
}

// forget takes a held conversation out of the queue.
func (q *queue) forget(id conversation.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.places, id)
}

// reached notes how a call of the lane ended: with failed if there was no answer,
// else exists tells whether the answer was about a conversation that exists. When
// the agent server is back, the parked conversations of the lane are queued.
func (q *queue) reached(l *lane, failed *Error, exists bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if failed != nil {
		if l.unreachable == 0 {
			l.since = time.Now()
		}
		l.unreachable++
		l.lastErr, l.calledAt = failed, time.Now()

		return
	}
	l.unreachable = 0
	if !exists {
		return
	}
	l.answered = true
	for id := range l.parked {
		q.enqueue(id, l)
	}
	clear(l.parked)
}

// dead tells whether the agent server of a lane has been away for so long that
// its conversations are parked.
func (q *queue) dead(l *lane) bool {
	q.mu.Lock()
	defer q.mu.Unlock()

	return l.unreachable >= unreachableLimit && time.Since(l.since) >= deadAfter
}

// mayCall returns nil if a taken conversation may be refreshed, else what the last
// call to the dead agent server failed with.
func (q *queue) mayCall(l *lane) *Error {
	dead := q.dead(l)
	q.mu.Lock()
	defer q.mu.Unlock()
	if dead && time.Since(l.calledAt) < deadCallGap {
		return l.lastErr
	}
	l.calledAt = time.Now()

	return nil
}

// park remembers a conversation for reached.
func (q *queue) park(l *lane, id conversation.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.parked[id] = true
}

// warns tells whether a text is new enough for a warning: a dead agent server
// makes all its conversations fail with the same one.
func (q *queue) warns(l *lane, text string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	is := l.warned != text
	l.warned = text

	return is
}

// depth returns how many conversations wait, how many are being refreshed, and
// how many of the waiting wait for a server.
func (q *queue) depth() (waiting, busy, blocked int) {
	q.mu.Lock()
	defer q.mu.Unlock()

	return len(q.places) - q.busy, q.busy, len(q.blocked)
}
