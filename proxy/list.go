package proxy

import (
	"maps"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// walk is a listing of tools that goes through several pages.
type walk struct {
	cursor     string
	generation uint64
	process    uint64
	began      time.Time
	hash       uint64
}

// cursorMember and nextCursorMember name the pages of a list (MCP 2025-11-25
// "Pagination").
const (
	cursorMember     = "cursor"
	nextCursorMember = "nextCursor"
)

// walks are the listings under way of callers without a session, and nothing but a
// cursor that they were given tells which listing a page belongs to. A cursor is
// forgotten with time.
type walks struct {
	mu sync.Mutex
	at map[walkKey]walk
}

// walkKey is a place in a caller's listing.
type walkKey struct {
	caller string
	conv   conversation.ID
	cursor string
}

// Bounds of the listings that are remembered.
const (
	maxWalks  = 1024
	maxCursor = 1 << 10
	walkTime  = time.Minute
)

// put remembers a listing that goes on. Where one caller has several at the same
// place, the newest counts.
func (t *walks) put(k walkKey, w walk) {
	if len(k.cursor) > maxCursor {
		return
	}

	t.mu.Lock()
	defer t.mu.Unlock()

	if len(t.at) >= maxWalks {
		maps.DeleteFunc(t.at, func(_ walkKey, o walk) bool { return w.began.Sub(o.began) > walkTime })
	}

	if t.at == nil || len(t.at) >= maxWalks {
		t.at = make(map[walkKey]walk)
	}

	t.at[k] = w
}

func (t *walks) get(k walkKey) walk {
	t.mu.Lock()
	defer t.mu.Unlock()

	return t.at[k]
}

// listed looks at a page of the tool list that the client is about to get.
func (x *exchange) listed(result []byte) {
	if x.sess == nil && x.to.conv == "" && x.srv.subscriptions.none() {
		return
	}

	now := time.Now()
	hash := hashList(x.srv.seed, result)
	next, more := cursorOf(result, nextCursorMember)

	w := walk{generation: x.began.generation(), process: x.began.process, began: x.beganAt}
	if x.unsettled {
		w.generation = 0
	}

	if m := &x.env.messages[0]; m.hasCursor {
		cursor, _ := cursorOf(m.params.of(x.body), cursorMember)

		first, ok := x.walkAt(cursor)
		if !ok {
			return // the beginning of this one wasn't seen
		}

		w.began, hash = first.began, first.hash*31+hash

		if first.process != w.process || first.generation != w.generation {
			return // pages of two lists
		}
	}

	w.cursor, w.hash = next, hash

	switch {
	case x.sess != nil:
		x.sess.sawList(w, more, now, x.unsettled)
	case more:
		x.srv.walks.put(walkKey{x.caller(), x.to.conv, next}, w)
	default:
		x.srv.subscriptions.sawList(x.caller(), w, now, x.unsettled)
	}

	if !more && x.to.conv != "" {
		x.p.conversations.Listed(conversation.Listing{
			ID: x.to.conv, Server: x.srv.name, Generation: w.generation,
			Began: w.began, Ended: now, Complete: true,
		})
	}
}

// walkAt returns the walk that goes on at a cursor.
func (x *exchange) walkAt(cursor string) (walk, bool) {
	if x.sess == nil {
		w := x.srv.walks.get(walkKey{x.caller(), x.to.conv, cursor})

		return w, !w.began.IsZero() && time.Since(w.began) < walkTime
	}

	x.sess.mu.Lock()
	defer x.sess.mu.Unlock()

	w := x.sess.walk

	return w, !w.began.IsZero() && w.cursor == cursor
}

// sawList keeps what a page of the session's own listing showed.
func (s *session) sawList(w walk, more bool, now time.Time, unsettled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if more {
		s.walk = w
		return
	}

	s.walk = walk{}
	s.inherited = false

	if w.generation != 0 {
		s.knows = w.generation
	}

	s.notices.unsettled = unsettled
	s.notices.list(w.began, now, w.hash)
}

// listing counts the session's listings that are under way.
func (s *session) listing(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.notices.listing += n
}

// cursorOf reads a cursor. The empty string is one too (MCP 2026-07-28
// "Pagination"); null and nothing are none.
func cursorOf(object []byte, name string) (string, bool) {
	if len(object) == 0 {
		return "", false
	}

	s := scanner{b: object}

	at, ok := s.find(name)
	if !ok || len(at.of(object)) == 0 || at.of(object)[0] != '"' {
		return "", false
	}

	v, err := text(at.of(object))

	return v, err == nil
}
