package proxy

import (
	"hash/maphash"
	"time"
)

// listChanged is the notice that the sidecar sends by itself. It has no id line,
// so that the client's resume cursor stays what it is.
const listChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

const methodListChanged = "notifications/tools/list_changed"

// Times of the notices.
const (
	// noticeMost is the longest a notice waits for more of them, in units of the
	// quiet time.
	noticeMost = 2
	// noticeCause is how long after a listing of the session a notice of the
	// backend may still be caused by it.
	noticeCause = 250 * time.Millisecond
	// futileMost bounds how often the quiet time of a backend's notices doubles
	// while they tell nothing new, and futileFor how long that is remembered.
	futileMost = 6
	futileFor  = 2 * time.Minute
)

// notices decides when one session is told that the tool list changed. A burst of
// reasons becomes one notice after the last of them; it is guarded by the
// session's lock.
type notices struct {
	due   bool
	firm  bool      // one of the reasons is a new generation
	count int       // of the reasons
	since time.Time // of the first one
	last  time.Time // when the last notice went out
	timer *time.Timer

	// What the session's own listings showed, to break the loop in which a
	// backend gives notice of every listing.
	listing   int       // listings that are under way
	listed    time.Time // end of the last one
	hash      uint64    // of its result
	unchanged bool      // it was the same as the one before, and no notice was blamed on it yet
	futile    int       // notices in a row after which it was the same

	// unsettled says that a listing was answered while the list was still
	// growing: the session must be told once it has settled.
	unsettled bool
}

// reason notes a reason for a notice and returns how long to wait for more.
func (n *notices) reason(now time.Time, quiet time.Duration, firm bool) time.Duration {
	// A backend that gives notice to all of its sessions when one of them lists
	// keeps several clients listing for ever; what is asked for so often and never
	// new can wait. A new generation doesn't.
	if firm || now.Sub(n.last) > futileFor {
		n.futile = 0
	}

	quiet <<= n.futile

	if !n.due {
		n.due, n.since, n.count, n.firm = true, now, 0, false
	}

	n.count++
	n.firm = n.firm || firm

	return max(0, min(quiet, n.since.Add(noticeMost*quiet).Sub(now)))
}

// take reports whether a notice is due, and takes it.
func (n *notices) take() bool {
	due := n.due
	n.due = false

	return due
}

// blame reports whether a notice of the backend that comes now was caused by the
// session's own listing of a list that hasn't changed. Each listing takes the
// blame for one notice only, so that no real change is lost behind it.
func (n *notices) blame(now time.Time) bool {
	if !n.unchanged || n.listing == 0 && now.Sub(n.listed) > noticeCause {
		return false
	}

	n.unchanged = false

	return true
}

// list notes what a listing of the session showed that took from began to now.
func (n *notices) list(began, now time.Time, hash uint64) {
	n.unchanged = n.hash == hash && hash != 0

	switch {
	case !n.unchanged:
		n.futile = 0
	case n.last.After(n.listed) && began.After(n.last):
		n.futile = min(n.futile+1, futileMost)
	}

	n.hash, n.listed = hash, now

	// The notice that it caused may have overtaken it.
	if n.unchanged && n.due && !n.firm && n.count == 1 && !n.since.Before(began) {
		n.due, n.unchanged = false, false
	}
}

// hashList is a fingerprint of a listing's result for comparison within this
// process.
func hashList(seed maphash.Seed, result []byte) uint64 { return maphash.Bytes(seed, result) }
