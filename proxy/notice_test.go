package proxy

import (
	"testing"
	"time"
)

// TestFutileNotices plays two clients of a backend that gives notice to everybody when anybody lists: what one of them
// hears of is never caused by its own listing.
func TestFutileNotices(t *testing.T) {
	const quiet = 500 * time.Millisecond

	now := time.Now()
	n := &notices{}
	n.list(now, now, 1)

	// round is a notice of the backend, and the client's listing after it.
	round := func(hash uint64) (delay time.Duration) {
		delay = n.reason(now, quiet, false)
		now = now.Add(delay)

		if !n.take() {
			t.Fatal("no notice is due")
		}

		n.last = now
		now = now.Add(time.Second)
		n.list(now, now, hash)
		now = now.Add(noticeCause + time.Millisecond)

		return delay
	}

	for i := range 10 {
		if got, want := round(1), quiet<<min(i, futileMost); got != want {
			t.Errorf("notice %d waits %s, want %s", i+1, got, want)
		}
	}

	round(2) // there was something new after all

	if got := round(2); got != quiet {
		t.Errorf("after a change a notice waits %s", got)
	}

	if got := n.reason(now, quiet, true); got != quiet {
		t.Errorf("a new generation waits %s", got)
	}

	n.take()
	round(2)
	now = now.Add(futileFor + time.Second)

	if got := round(2); got != quiet {
		t.Errorf("after a long silence a notice waits %s", got)
	}
}
