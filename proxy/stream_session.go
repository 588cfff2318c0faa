package proxy

import (
	"context"
	"net/http"
	"sync"
)

// isOpen reports whether the client has its header.
func (c *clientStream) isOpen() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.begun
}

// refreshed returns the header of a stream with the credentials that the session
// has by now: a token may be long over when the stream has to be opened again.
func (s *session) refreshed(h http.Header) http.Header {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.credentials == nil || s.principal != principalOf(s.credentials) || sameCredentials(s.credentials, h) {
		return h
	}

	h = h.Clone()

	for _, name := range credentialHeaders {
		delete(h, name)

		if v := s.credentials[name]; v != nil {
			h[name] = v
		}
	}

	return h
}

// bind says how to end the session's backend stream.
func (s *session) bind(end context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.rebind = end
}

// unbind ends the session's backend stream, to be opened anew.
func (s *session) unbind() {
	s.mu.Lock()
	end := s.rebind
	s.mu.Unlock()

	if end != nil {
		end()
	}
}

// confirmedIn reports whether the backend's process has taken a request of the
// session.
func (s *session) confirmedIn(process uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.backend == "" || s.confirmed == process+1
}

// selfServed says of which process of the backend it is known that it offers no
// listening stream.
type selfServed struct {
	mu      sync.Mutex
	process uint64 // plus one
}

func (s *selfServed) servesItself(process uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.process == process+1
}

func (s *selfServed) serveItself(process uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.process = process + 1
}
