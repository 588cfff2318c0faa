package proxy

import (
	"context"
	"slices"
	"sync"
	"time"
)

// subscription is a client's subscriptions/listen stream (MCP 2026-07-28
// "Subscriptions"). The client has one stream as long as it wants it; behind that
// one stream of the backend follows the other. One goroutine, that of the client's
// request, opens and reads them.
type subscription struct {
	x      *exchange
	cancel context.CancelCauseFunc
	srv    *server
	id     []byte // of the request, which names the subscription
	caller string
	tools  bool // the client asked to be told of changes of the tool list

	c        *clientStream  // from the acknowledgement on
	promised map[string]any // what the client was told that it will hear of
	silent   bool           // the process has no such stream, or would never say anything on it
	process  uint64
	fails    int  // tries in a row that came to nothing
	odd      int  // tries in a row that were refused
	finished bool // the client has the result

	sending sync.Mutex // orders the notices and the result

	mu      sync.Mutex
	acked   bool
	ending  bool
	over    bool
	told    uint64 // generation of the tool list that the client knows or was told of
	notices notices
	rebind  context.CancelFunc // ends the backend's stream, to open another
}

// subscriptions are those of one server.
type subscriptions struct {
	mu     sync.Mutex
	closed bool
	open   map[*subscription]struct{}
}

func (t *subscriptions) add(s *subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.open == nil {
		t.open = make(map[*subscription]struct{})
	}

	t.open[s] = struct{}{}
	s.ending = t.closed
}

func (t *subscriptions) remove(s *subscription) {
	t.mu.Lock()
	defer t.mu.Unlock()

	delete(t.open, s)
}

// close makes later subscriptions end as soon as they are acknowledged.
func (t *subscriptions) close() {
	t.mu.Lock()
	defer t.mu.Unlock()

	t.closed = true
}

func (t *subscriptions) all() []*subscription {
	t.mu.Lock()
	defer t.mu.Unlock()

	all := make([]*subscription, 0, len(t.open))
	for s := range t.open {
		all = append(all, s)
	}

	return all
}

// of returns the subscriptions of a caller.
func (t *subscriptions) of(caller string) []*subscription {
	return slices.DeleteFunc(t.all(), func(s *subscription) bool { return s.caller != caller })
}

func (t *subscriptions) none() bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	return len(t.open) == 0
}

// count is the number of streams that clients have.
func (t *subscriptions) count() (n int) {
	for _, s := range t.all() {
		s.mu.Lock()

		if s.acked {
			n++
		}
		s.mu.Unlock()
	}

	return n
}

// listing counts a caller's listing that is under way, until the returned function
// is called.
func (x *exchange) listing() (ended func()) {
	if x.srv.subscriptions.none() {
		return func() {}
	}

	subs := x.srv.subscriptions.of(x.caller())

	count := func(n int) {
		for _, s := range subs {
			s.mu.Lock()
			s.notices.listing += n
			s.mu.Unlock()
		}
	}

	count(1)

	return func() { count(-1) }
}

// sawList keeps what a complete listing of a caller showed.
func (t *subscriptions) sawList(caller string, w walk, now time.Time, unsettled bool) {
	if t.none() {
		return
	}

	for _, s := range t.of(caller) {
		s.mu.Lock()
		s.notices.unsettled = unsettled
		s.notices.list(w.began, now, w.hash)
		s.mu.Unlock()
	}
}

// bind says how to end the backend's stream.
func (s *subscription) bind(end context.CancelFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.rebind = end
}

// unbind ends the backend's stream, to be opened anew.
func (s *subscription) unbind() {
	s.mu.Lock()
	end := s.rebind
	s.mu.Unlock()

	if end != nil {
		end()
	}
}

// end ends the subscription as soon as the client has its acknowledgement.
func (s *subscription) end() {
	s.mu.Lock()
	s.ending = true
	acked := s.acked
	s.mu.Unlock()

	if acked {
		s.cancel(errStreamOver)
	}
}

// settled is called when the tool list has settled.
func (s *subscription) settled(generation uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()

	changed := s.told != 0 && generation > s.told
	if s.acked || s.told == 0 {
		s.told = max(s.told, generation)
	}

	n := &s.notices
	if !s.acked || !s.tools || s.over || !changed && !n.due && !n.unsettled {
		return
	}

	now, quiet := time.Now(), s.srv.p.config().NoticeQuiet

	n.reason(now, quiet, changed)
	s.schedule(max(0, n.last.Add(quiet).Sub(now)))
}

// takeNotice takes a notice of the backend that the tool list changed.
func (s *subscription) takeNotice() {
	now := time.Now()

	s.mu.Lock()
	defer s.mu.Unlock()

	if !s.tools || s.over || s.notices.blame(now) {
		return
	}

	delay := s.notices.reason(now, s.srv.p.config().NoticeQuiet, false)

	// While the list is still growing, the notice waits until it has settled.
	if v := s.srv.gate.look(); v.passes(needSettled) {
		s.schedule(delay)
	}
}

// schedule makes the notice that is due go out after a delay. The caller holds the
// lock.
func (s *subscription) schedule(delay time.Duration) {
	if t := s.notices.timer; t != nil {
		t.Reset(delay)
		return
	}

	s.notices.timer = time.AfterFunc(delay, s.announce)
}

// announce sends the notice that is due, if there is one.
func (s *subscription) announce() {
	s.sending.Lock()
	defer s.sending.Unlock()

	s.mu.Lock()

	if s.over || !s.notices.take() {
		s.mu.Unlock()
		return
	}

	s.notices.last = time.Now()
	s.notices.unsettled = false
	s.mu.Unlock()

	if s.c.write(appendEvent(nil, "message", "", s.listChanged())) == nil {
		s.srv.metrics.announced.Inc()
	}
}

// finish tells the client that the subscription is over, after everything else
// that it is to be told.
func (s *subscription) finish() {
	left := s.x.r.Context().Err() != nil
	if !left {
		s.announce()
	}

	s.sending.Lock()
	defer s.sending.Unlock()

	s.mu.Lock()
	s.over = true

	if s.notices.timer != nil {
		s.notices.timer.Stop()
	}
	s.mu.Unlock()

	if !left && !s.finished {
		_ = s.c.write(appendEvent(nil, "message", "", s.result()))
	}
}
