//go:build chaos && unix

package chaos

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// timeline is what was done to whom, and when.
type timeline struct {
	start time.Time

	mu      sync.Mutex
	lines   []string
	outages []outage
}

// outage is a time in which the sidecar couldn't be reached.
type outage struct {
	from, to time.Time
	graceful bool // it was asked to stop: what it had begun it must finish
}

func newTimeline() *timeline { return &timeline{start: time.Now()} }

// note writes a line.
func (l *timeline) note(format string, a ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, fmt.Sprintf("%9.3f  ", time.Since(l.start).Seconds())+fmt.Sprintf(format, a...))
}

// at is a time as the timeline writes it.
func (l *timeline) at(t time.Time) string { return fmt.Sprintf("%.3f", t.Sub(l.start).Seconds()) }

func (l *timeline) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.lines, "\n")
}

// down notes that the sidecar is going to be away, and up that it is back.
func (l *timeline) down(graceful bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outages = append(l.outages, outage{from: time.Now(), graceful: graceful})
}

func (l *timeline) up() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.outages[len(l.outages)-1].to = time.Now()
}

// excuses reports whether what began at that time may be cut off now, because the sidecar was away since.
func (l *timeline) excuses(from time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.outages {
		switch {
		case !o.to.IsZero() && o.to.Before(from):
		case o.graceful && from.Before(o.from) && time.Since(o.from) < drainTimeout-slack:
		default:
			return true
		}
	}
	return false
}

// stopped reports whether the sidecar was away at some time since from, asked to or not.
func (l *timeline) stopped(from time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.ContainsFunc(l.outages, func(o outage) bool { return o.to.IsZero() || o.to.After(from) })
}
