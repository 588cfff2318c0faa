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

// lane is the part of the queue that belongs to one agent server. The queue's
// lock guards it.
type lane struct {
	name    string
	client  refresher
	limit   int // refreshes at once
	running int // calls to the agent server
	active  int // conversations in placeRunning, their records included
	waiting []conversation.ID

	// unreachable counts the calls in a row that got no answer; the last one ended
	// at failedAt with lastErr. After a few the agent server is taken for dead, and
	// isn't called before retryAt.
	unreachable int
	failedAt    time.Time
	lastErr     *Error
	retryAt     time.Time
	// away are conversations that failed because of that.
	away map[conversation.ID]bool
	// answered says that since the lane was last empty some conversation got
	// another answer than 404; gone are those which got that.
	answered bool
	gone     []goner
	// warned is the last text that was logged as a warning since then.
	warned string
}

const (
	// unreachableLimit is the number of calls in a row without an answer after which
	// an agent server is taken for dead. Then it is called one call at a time, after
	// pauses that double between these two; conversations whose turn comes meanwhile
	// are parked without a call.
	unreachableLimit = 3
	shortestPause    = 500 * time.Millisecond
	longestPause     = 5 * time.Minute
)

// dead tells whether the agent server is taken for dead.
func (l *lane) dead() bool { return l.unreachable >= unreachableLimit }

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
			q.unset(id)
		}
	}

	return unused
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

// take returns the next conversation that may be refreshed now and the client
// for it; the caller owes a release and a done. Lanes take turns.
func (q *queue) take(now time.Time) (conversation.ID, *lane, refresher, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy >= q.limit {
		return "", nil, nil, false
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

		return id, l, l.client, true
	}

	return "", nil, nil, false
}

// sendScout queues one of the conversations that wait for the return of a dead
// agent server, when it is time to try again.
func (q *queue) sendScout(l *lane, now time.Time) {
	if len(l.waiting) > 0 || l.running > 0 || now.Before(l.retryAt) {
		return
	}
	for id := range l.away {
		delete(l.away, id)
		if q.places[id] == 0 {
			q.enqueue(id, l)

			return
		}
	}
}

// scoutAt returns when the next dead agent server can be tried again, zero when
// there is none, or no worker for it.
func (q *queue) scoutAt() time.Time {
	q.mu.Lock()
	defer q.mu.Unlock()
	var first time.Time
	if q.busy >= q.limit {
		return first
	}
	for _, l := range q.turns {
		if l.dead() && l.running == 0 && len(l.away) > 0 && (first.IsZero() || l.retryAt.Before(first)) {
			first = l.retryAt
		}
	}

	return first
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
	q.ended[id] = true
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
	q.ended[id] = true
}

// reached notes how a call of the lane ended: with failed if there was no answer,
// else exists tells whether the answer was about a conversation that exists. When
// the agent server is back, the conversations that wait for that are queued.
func (q *queue) reached(l *lane, failed *Error, exists bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if failed != nil {
		l.unreachable++
		l.lastErr, l.failedAt = failed, time.Now()
		if l.dead() {
			doublings := min(l.unreachable-unreachableLimit, 20)
			l.retryAt = l.failedAt.Add(jitter(min(shortestPause<<doublings, longestPause)))
		}

		return
	}
	l.unreachable = 0
	if !exists {
		return
	}
	l.answered = true
	for id := range l.away {
		q.enqueue(id, l)
	}
	clear(l.away)
}

// mayCall returns nil if a taken conversation may be refreshed, else what the last
// call to the dead agent server failed with. A forced refresh is always tried,
// and so is one after a sign of life.
func (q *queue) mayCall(l *lane, v conversation.View) *Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !l.dead() || v.Forced || v.LastActive.After(l.failedAt) || !time.Now().Before(l.retryAt) {
		return nil
	}

	return l.lastErr
}

// awaitReturn remembers a conversation that is to be queued when the agent server
// is back.
func (q *queue) awaitReturn(l *lane, id conversation.ID) {
	q.mu.Lock()
	defer q.mu.Unlock()
	l.away[id] = true
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
