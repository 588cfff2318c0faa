package stdio

import (
	"io"
	"sync"
	"time"
)

// Bounds on what waits for a session without a stream.
const (
	maxBacklog      = 64
	maxBacklogBytes = 1 << 20
)

// session is one client of the endpoint. Its id is unknown once the process that
// serves it has ended.
type session struct {
	id   string
	proc *process

	mu      sync.Mutex
	get     *stream // its GET stream, nil without one
	backlog []message
	size    int
	used    time.Time
	ended   bool
}

// open makes s the session's GET stream, with everything that has waited for one.
// The one before, which may be dead without anybody having noticed, ends. It
// returns false when the session has ended.
func (s *session) open(get *stream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ended {
		return false
	}

	if s.get != nil {
		s.get.end(io.EOF)
	}

	s.get = get
	s.used = time.Now()

	for _, m := range s.take() {
		get.push(m.raw)
	}

	return true
}

// left takes note that the reader of a GET stream is gone.
func (s *session) left(get *stream) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.used = time.Now()

	if s.get == get {
		s.get = nil
	}
}

// tell passes on a message that no request is known for: to the GET stream, else
// to other, else to whoever comes. It returns the messages that had to make room.
func (s *session) tell(m message, other *exchange) (dropped []message) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.get != nil && s.get.push(m.raw) || other != nil && other.deliver(m.raw, false) {
		return nil
	}

	s.backlog = append(s.backlog, m)
	s.size += len(m.raw)

	for len(s.backlog) > maxBacklog || s.size > maxBacklogBytes {
		dropped = append(dropped, s.backlog[0])
		s.size -= len(s.backlog[0].raw)
		s.backlog = s.backlog[1:]
	}

	return dropped
}

// flush passes on what has waited, to a request.
func (s *session) flush(x *exchange) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.used = time.Now()

	if s.get != nil || len(s.backlog) == 0 || !x.takesEvents() {
		return
	}

	for _, m := range s.take() {
		x.deliver(m.raw, false)
	}
}

func (s *session) take() []message {
	waited := s.backlog
	s.backlog, s.size = nil, 0

	return waited
}

// end ends the session's stream; err is io.EOF for an orderly end.
func (s *session) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.ended = true
	s.backlog = nil

	if s.get != nil {
		s.get.end(err)
	}
}

// idleSince returns when the session was last used; false while it has a stream.
func (s *session) idleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.used, s.get == nil
}
