package stdio

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

var (
	errClosed = errors.New("reading a body that was closed")
	// errSlow: it is a broken connection for whoever doesn't read.
	errSlow = fmt.Errorf("the reader of an event stream is too slow: %w", io.ErrUnexpectedEOF)
)

// stream is the body of an event stream: messages go in at one side and come out
// as events at the other. Putting something in never blocks; who doesn't read
// loses the stream.
type stream struct {
	limit   int    // bytes that may wait
	onClose func() // called once, when the reader closes it; may be nil

	mu     sync.Mutex
	queue  [][]byte
	size   int
	err    error         // no more messages will come
	wake   chan struct{} // of capacity 1: something changed
	closed bool

	event [][]byte // rest of the event that is being read; only the reader uses it
}

var _ io.ReadCloser = (*stream)(nil)

func newStream(limit int, onClose func()) *stream {
	return &stream{limit: limit, onClose: onClose, wake: make(chan struct{}, 1)}
}

// push adds a message. It returns false when the stream has ended.
func (s *stream) push(msg []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.err != nil:
		return false
	case s.size > 0 && s.size+len(msg) > s.limit:
		s.finish(errSlow)
		return false
	}

	s.queue = append(s.queue, msg)
	s.size += len(msg)
	s.signal()

	return true
}

// end says that no more messages will come: io.EOF for an orderly end. The first
// call counts.
func (s *stream) end(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.finish(err)
}

func (s *stream) finish(err error) {
	if s.err == nil {
		s.err = err
		s.signal()
	}
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Read implements [io.Reader].
func (s *stream) Read(p []byte) (int, error) {
	for len(s.event) == 0 {
		msg, err := s.pop()
		if err != nil {
			return 0, err
		}

		if msg == nil {
			<-s.wake
			continue
		}

		flatten(msg) // a line break would end the data of the event
		s.event = [][]byte{[]byte("event: message\ndata: "), msg, []byte("\n\n")}
	}

	n := 0

	for len(s.event) > 0 && n < len(p) {
		c := copy(p[n:], s.event[0])
		n += c

		if s.event[0] = s.event[0][c:]; len(s.event[0]) == 0 {
			s.event = s.event[1:]
		}
	}

	return n, nil
}

// pop takes the next message; nil if there is none yet.
func (s *stream) pop() ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()

	switch {
	case s.closed:
		return nil, errClosed
	case len(s.queue) > 0:
		msg := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		s.size -= len(msg)

		return msg, nil
	default:
		return nil, s.err
	}
}

// Close implements [io.Closer].
func (s *stream) Close() error {
	s.mu.Lock()
	first := !s.closed
	s.closed = true
	s.finish(errClosed)
	s.queue, s.size = nil, 0
	s.mu.Unlock()

	if first && s.onClose != nil {
		s.onClose()
	}

	return nil
}
