package notify

import (
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// lane is the part of the queue that belongs to one agent server. The queue's
// lock guards it.
type lane struct {
	name    string
	label   string // in metrics
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
	// away are conversations that can't be refreshed before the agent server is
	// back, its sandbox runs again, or it has the refresh action.
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

// replace takes over what is configured of by and returns the old client.
func (l *lane) replace(by *lane) (unused refresher) {
	unused = l.client
	l.label, l.client, l.limit, l.unreachable = by.label, by.client, by.limit, 0

	return unused
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
// else exists tells whether the answer was about a conversation that exists. Then
// the conversations that wait for such an answer are queued.
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

// awaitReturn remembers a conversation that is to be queued when another of the
// lane is refreshed.
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
