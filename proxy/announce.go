package proxy

import "time"

// swapped makes every session open its stream anew: the process behind the old one
// is gone, even where the connection doesn't show it.
func (s *server) swapped() {
	for _, sess := range s.sessions.all() {
		sess.unbind()
	}

	for _, sub := range s.subscriptions.all() {
		sub.unbind()
	}
}

// known notes a generation that clients may know already, so that the next one is a
// change for them.
func (s *server) known(generation uint64) {
	if s.generation.Load() == 0 {
		s.generation.Store(generation)
	}
}

// settled tells the sessions and subscriptions that listen when the tool list is another one.
func (s *server) settled(generation uint64) {
	before := s.generation.Load()
	changed := before != 0 && generation > before

	if generation > before {
		s.generation.Store(generation)
	}

	for _, sess := range s.sessions.all() {
		sess.settled(changed)
	}

	for _, sub := range s.subscriptions.all() {
		sub.settled(generation)
	}
}

// settled is called for every session when the tool list has settled.
func (s *session) settled(changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	n := &s.notices
	if len(s.streams) == 0 || s.silent || !changed && !n.due && !n.unsettled {
		return
	}

	now := time.Now()
	quiet := s.srv.p.config().NoticeQuiet

	n.reason(now, quiet, changed)
	s.schedule(max(0, n.last.Add(quiet).Sub(now)))
}

// opened is called when the session has a new stream. A client that missed a
// change, or may have while another sidecar served it, is told now.
func (s *session) opened() {
	generation := s.srv.generation.Load()

	s.mu.Lock()
	defer s.mu.Unlock()

	missed := s.inherited || s.knows != 0 && s.knows < generation
	s.inherited = false

	if !missed && !s.notices.unsettled || s.silent {
		return
	}

	s.notices.reason(time.Now(), s.srv.p.config().NoticeQuiet, missed)

	if v := s.srv.gate.look(); v.passes(needSettled) {
		s.schedule(0)
	}
}

// takeNotice takes a notice of the backend that the tool list changed. It returns
// false when the notice is to be passed on where it came.
func (s *session) takeNotice() bool {
	now := time.Now()

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.notices.blame(now) {
		return true
	}

	if len(s.streams) == 0 || s.silent {
		return false
	}

	delay := s.notices.reason(now, s.srv.p.config().NoticeQuiet, false)

	// While the list is still growing, the notice waits until it has settled.
	if v := s.srv.gate.look(); v.passes(needSettled) {
		s.schedule(delay)
	}

	return true
}

// schedule makes the notice that is due go out after a delay. The caller holds the
// lock.
func (s *session) schedule(delay time.Duration) {
	if t := s.notices.timer; t != nil {
		t.Reset(delay)
		return
	}

	s.notices.timer = time.AfterFunc(delay, s.announce)
}

// announce sends the notice that is due.
func (s *session) announce() {
	s.mu.Lock()

	if !s.notices.take() || s.ended || s.silent || !s.initialized {
		s.mu.Unlock()
		return
	}

	s.notices.last = time.Now()
	s.notices.unsettled = false
	s.mu.Unlock()

	if s.deliver(appendEvent(nil, "message", "", []byte(listChanged))) {
		s.srv.metrics.announced.Inc()
	}
}
