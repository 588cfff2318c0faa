package stdio

import (
	"math/rand/v2"
	"time"
)

// starts decides when a process may be started. After a failure there is a pause,
// longer after each one, and then one process is brought up at a time, until one
// has proved itself. It isn't safe for concurrent use.
type starts struct {
	min, max time.Duration

	failures int
	next     time.Time // no start before
	trial    *process  // nil, or the one that is being tried
}

// allowed reports whether a process may be started now.
func (s *starts) allowed(now time.Time) bool {
	return s.failures == 0 || s.trial == nil && !now.Before(s.next)
}

// begin takes note of a new process.
func (s *starts) begin(p *process) {
	if s.failures > 0 {
		s.trial = p
	}
}

// spoke takes note that a process has come so far that another can be tried too.
func (s *starts) spoke(p *process) {
	if s.trial == p {
		s.trial = nil
	}
}

// proved takes note that a process does its work.
func (s *starts) proved() { s.failures, s.trial = 0, nil }

// ended takes note that a process is gone, and returns how long none is started if
// it failed.
func (s *starts) ended(p *process, failed bool, now time.Time) time.Duration {
	s.spoke(p)

	if !failed {
		return 0
	}

	d := s.min
	for n := 0; n < s.failures && d < s.max; n++ {
		d = min(2*d, s.max)
	}

	s.failures++

	// Jittered, so that several sidecars don't start in step.
	d = d/2 + rand.N(d) //nolint:gosec // nothing to guess
	s.next = now.Add(d)

	return d
}
