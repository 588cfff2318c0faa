package conversation

import (
	"container/heap"
	"math"
	"time"
)

// dueNow is the place in the queue of conversations that needn't wait.
const dueNow = stamp(math.MinInt64)

// dueHeap orders the entries that need an attempt by when. Entries know their index.
type dueHeap struct{ entries []*entry }

// Len, Less, Swap, Push and Pop are for package heap.
func (h *dueHeap) Len() int { return len(h.entries) }

// Less compares two entries.
func (h *dueHeap) Less(i, j int) bool { return h.entries[i].due < h.entries[j].due }

// Swap exchanges two entries.
func (h *dueHeap) Swap(i, j int) {
	h.entries[i], h.entries[j] = h.entries[j], h.entries[i]
	h.entries[i].pos, h.entries[j].pos = i, j
}

// Push adds an entry at the end.
func (h *dueHeap) Push(x any) {
	e, _ := x.(*entry)
	e.pos = len(h.entries)
	h.entries = append(h.entries, e)
}

// Pop takes the last entry off.
func (h *dueHeap) Pop() any {
	last := len(h.entries) - 1
	e := h.entries[last]
	h.entries[last] = nil
	h.entries = h.entries[:last]
	e.pos = -1
	return e
}

func (h *dueHeap) remove(e *entry) {
	if e.pos >= 0 {
		heap.Remove(h, e.pos)
	}
}

// Due returns the conversations that need a refresh attempt now, in no particular order, and when the next one will (zero: not before Changed
// is signalled). Conversations at agent servers that aren't configured are left out. It does not claim: an id is returned until the attempt
// was recorded by Update.
func (r *Registry) Due(now time.Time) (ids []ID, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := r.clock.stamp(now)
	first := never
	var gone []*entry
	var walk func(i int)
	walk = func(i int) { // what is due is a connected part of the heap, around its root
		if i >= r.due.Len() {
			return
		}
		e := r.due.entries[i]
		if e.due > at {
			first = min(first, e.due)
			return
		}
		if r.dueAt(e, at) == never { // went idle meanwhile
			gone = append(gone, e)
		} else {
			ids = append(ids, e.id)
		}
		walk(2*i + 1)
		walk(2*i + 2)
	}
	walk(0)
	for _, e := range gone {
		r.due.remove(e)
	}
	if first != never {
		next = r.clock.time(first, now)
	}
	return ids, next
}

// reindex puts the entry where it belongs in the heap, and signals when that is earlier than before. mu is held.
func (r *Registry) reindex(e *entry) {
	at := r.dueAt(e, r.clock.stamp(r.clock.now()))
	if at == never {
		r.due.remove(e)
		return
	}
	if e.pos < 0 {
		e.due = at
		heap.Push(&r.due, e)
		signal(r.changed)
		return
	}
	earlier := at < e.due
	e.due = at
	heap.Fix(&r.due, e.pos)
	if earlier {
		signal(r.changed)
	}
}

// rebuildDue makes the heap anew, in one pass. mu is held.
func (r *Registry) rebuildDue() {
	now := r.clock.stamp(r.clock.now())
	for _, e := range r.due.entries {
		e.pos = -1
	}
	clear(r.due.entries)
	r.due.entries = r.due.entries[:0]
	for _, e := range r.order {
		if at := r.dueAt(e, now); at != never {
			e.due = at
			r.due.Push(e)
		}
	}
	heap.Init(&r.due)
	signal(r.changed)
}
