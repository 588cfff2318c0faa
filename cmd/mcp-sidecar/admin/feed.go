package admin

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Bounds of the feed.
const (
	feedHistory    = 256  // events kept for clients that come back
	feedRefreshes  = 1024 // likewise of refreshes, of which there are many: they don't push out the rest
	feedQueue      = 256  // events that may wait for one client
	maxSubscribers = 64
	feedKeepAlive  = 15 * time.Second
	feedWrite      = 10 * time.Second // time for one write
)

// Event is something that happened, as the feed tells it.
type Event struct {
	// Type is state, swap, generation, refresh, reload or quiesce. A field is set
	// where its comment names the type.
	Type   string    `json:"type"`
	At     time.Time `json:"at"`
	Server string    `json:"server,omitempty"`

	State      string   `json:"state,omitempty"`      // state
	Cause      string   `json:"cause,omitempty"`      // swap, generation
	Generation uint64   `json:"generation,omitempty"` // generation, refresh
	Hash       string   `json:"hash,omitempty"`       // generation
	Tools      int      `json:"tools,omitempty"`      // generation: how many there are
	Added      []string `json:"added,omitempty"`      // generation
	Removed    []string `json:"removed,omitempty"`
	Changed    []string `json:"changed,omitempty"`
	Omitted    int      `json:"omitted,omitempty"` // how many names are left out of these lists
	Breaking   bool     `json:"breaking,omitempty"`

	Conversation string `json:"conversation,omitempty"` // refresh
	AgentServer  string `json:"agentServer,omitempty"`
	Result       string `json:"result,omitempty"` // refresh, reload
	Reason       string `json:"reason,omitempty"`
	How          string `json:"how,omitempty"`
	Attempt      int    `json:"attempt,omitempty"`
}

// Feed hands events to everyone who reads GET /v1/events. Publishing never
// waits: a reader that is too slow loses its connection, and finds what it
// missed when it comes back with the id of its last event. It is safe for
// concurrent use.
type Feed struct {
	mu        sync.Mutex
	last      uint64      // id of the newest event
	history   []feedEvent // oldest first, without those of refreshes
	refreshes []feedEvent // oldest first
	readers   map[chan feedEvent]struct{}
	closed    bool
}

// eventRefresh is the type of the events of refreshes.
const eventRefresh = "refresh"

type feedEvent struct {
	id   uint64
	kind string
	data []byte
}

// NewFeed returns a feed without events.
func NewFeed() *Feed {
	return &Feed{readers: map[chan feedEvent]struct{}{}}
}

// Publish hands out an event.
func (f *Feed) Publish(e Event) {
	data, err := json.Marshal(e)
	if err != nil {
		return // not possible: every field is plain
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last++
	fe := feedEvent{id: f.last, kind: e.Type, data: data}
	if e.Type == eventRefresh {
		f.refreshes = keep(f.refreshes, fe, feedRefreshes)
	} else {
		f.history = keep(f.history, fe, feedHistory)
	}
	for ch := range f.readers {
		select {
		case ch <- fe:
		default:
			delete(f.readers, ch)
			close(ch)
		}
	}
}

// keep appends an event and forgets the oldest ones.
func keep(events []feedEvent, e feedEvent, most int) []feedEvent {
	events = append(events, e)
	return slices.Delete(events, 0, max(0, len(events)-most))
}

// Close ends all connections. Events that come later go nowhere.
func (f *Feed) Close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for ch := range f.readers {
		delete(f.readers, ch)
		close(ch)
	}
}

// subscribe returns what happened after the event with the id after, and a
// channel for what comes next, which is nil when there are too many readers.
// The channel is closed when its reader is too slow or the feed ends.
func (f *Feed) subscribe(after uint64) (missed []feedEvent, ch chan feedEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || len(f.readers) >= maxSubscribers {
		return nil, nil
	}
	if after > f.last { // an id of an earlier process
		after = 0
	}
	for _, events := range [][]feedEvent{f.history, f.refreshes} {
		for i, e := range events {
			if e.id > after {
				missed = append(missed, events[i:]...)
				break
			}
		}
	}
	slices.SortFunc(missed, func(x, y feedEvent) int { return cmp.Compare(x.id, y.id) })
	ch = make(chan feedEvent, feedQueue)
	f.readers[ch] = struct{}{}
	return missed, ch
}

func (f *Feed) unsubscribe(ch chan feedEvent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.readers, ch)
}

// serve answers GET /v1/events. A new reader begins with the present; one that
// sends Last-Event-ID gets what it missed, with 0 all that is kept.
func (f *Feed) serve(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseUint(r.Header.Get("Last-Event-ID"), 10, 64)
	missed, ch := f.subscribe(after)
	if ch == nil {
		unavailable.with("too many readers of the event feed, or the sidecar is stopping").write(w)
		return
	}
	defer f.unsubscribe(ch)
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	rc := http.NewResponseController(w)
	send := func(format string, args ...any) bool {
		_ = rc.SetWriteDeadline(time.Now().Add(feedWrite)) // without it a stuck reader stays until it is too slow
		if _, err := fmt.Fprintf(w, format, args...); err != nil {
			return false
		}
		return rc.Flush() == nil
	}
	if !send(": events of mcp-sidecar\nretry: 2000\n\n") {
		return
	}
	if err == nil {
		for _, e := range missed {
			if !send("id: %d\nevent: %s\ndata: %s\n\n", e.id, e.kind, e.data) {
				return
			}
		}
	}
	keepAlive := time.NewTicker(feedKeepAlive)
	defer keepAlive.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-keepAlive.C:
			if !send(":\n\n") {
				return
			}
		case e, ok := <-ch:
			if !ok || !send("id: %d\nevent: %s\ndata: %s\n\n", e.id, e.kind, e.data) {
				return
			}
		}
	}
}
