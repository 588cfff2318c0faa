package conversation

import (
	"math"
	"time"
)

// stamp is a moment in nanoseconds on the registry's own clock, which doesn't follow jumps of the wall clock: they must not make
// conversations idle, end registrations or stretch waits. 0 is none.
type stamp int64

const never = stamp(math.MaxInt64)

type clock struct {
	now   func() time.Time
	epoch time.Time // has a monotonic reading when now gives one; a while ago, so that no moment of this process is 0
}

func newClock(now func() time.Time) clock {
	return clock{
		now:   func() time.Time { return now().UTC() },
		epoch: now().Add(-time.Hour),
	}
}

// stamp converts a time of this process exactly, and any other by what the wall clock says.
func (c clock) stamp(t time.Time) stamp {
	if t.IsZero() {
		return 0
	}
	if s := stamp(t.Sub(c.epoch)); s != 0 {
		return s
	}
	return 1
}

// time converts s to a time that is as old by the present wall clock as s is.
func (c clock) time(s stamp, now time.Time) time.Time {
	if s == 0 {
		return time.Time{}
	}
	return now.Add(time.Duration(s - c.stamp(now))).UTC()
}

// nanos and fromNanos keep a time that is only shown and compared with others of the wall clock in 8 bytes. 0 is none.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

func fromNanos(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.Unix(0, n).UTC()
}
