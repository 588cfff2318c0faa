//go:build chaos && unix

package chaos

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// stream is the event stream of a client of the transport of 2024-11-05. It is the session: the client posts to the
// address that the first event names, and everything else comes on the stream.
type stream struct {
	a       *agent
	get     caller
	began   time.Time
	closing atomic.Bool
	opened  chan struct{} // closed when the address is known
	ended   chan struct{} // closed when the stream has ended, and err says how
	err     error

	mu      sync.Mutex
	sign    time.Time
	address string                  // path and query
	answers map[string]chan message // of requests, by id: nil once there is a response
}

// open opens the stream and returns once it knows where to post. It returns false when that didn't work.
func (a *agent) open() bool {
	if s := a.caller.stream; s != nil && !s.over() {
		return true
	}
	a.ready = false
	a.caller.hangUp()
	s := &stream{
		a: a, get: caller{addr: a.caller.addr, path: "/" + a.server, patience: patience}, began: time.Now(), sign: time.Now(),
		opened: make(chan struct{}), ended: make(chan struct{}), answers: map[string]chan message{},
	}
	go s.run()
	select {
	case <-s.opened:
	case <-s.ended:
		time.Sleep(between(a.rng, 0, 200*time.Millisecond))
		return false
	}
	a.caller.stream, a.caller.path = s, s.address
	return true
}

// over reports whether the stream has ended.
func (s *stream) over() bool {
	select {
	case <-s.ended:
		return true
	default:
		return false
	}
}

// run reads the stream to its end, and decides whether it may have ended like that.
func (s *stream) run() {
	defer close(s.ended)
	defer s.get.hangUp()
	s.err = s.read()
	if s.closing.Load() {
		return
	}
	w := s.a.w
	switch {
	case w.excuses(s.err, s.sign), errors.Is(s.err, io.EOF) && w.time.stopped(s.sign):
	default:
		w.ledger.defect(nil, "the stream of %s, from %s, last heard of at %s, ended at %s: %v",
			s.a.name, w.time.at(s.began), w.time.at(s.sign), w.time.at(time.Now()), s.err)
	}
}

func (s *stream) read() error {
	resp, err := s.get.send(http.MethodGet, "") //nolint:bodyclose // the connection is
	switch {
	case err != nil:
		return err
	case resp.StatusCode == http.StatusBadGateway && s.a.w.time.stopped(s.began):
		return io.EOF
	case resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream":
		b, _ := io.ReadAll(resp.Body)
		return fmt.Errorf("the answer is %d %.300q", resp.StatusCode, b)
	}
	alive := func() {
		s.sign = time.Now()
		_ = s.get.c.SetReadDeadline(s.sign.Add(silence))
	}
	alive()
	message := messages(func(_ string, m message) error { return s.take(m) })
	err = readEvents(bufio.NewReader(resp.Body), alive, func(e event) error {
		if e.name == "endpoint" {
			return s.moved(string(e.data))
		}
		if s.address == "" {
			return fmt.Errorf("%q came before the address", e.data)
		}
		return message(e)
	})
	if errors.Is(err, io.EOF) {
		return err
	}
	return s.get.broke(err)
}

// moved takes the address to post to, which never changes.
func (s *stream) moved(ref string) error {
	if s.address != "" {
		return fmt.Errorf("another address came: %q", ref)
	}
	base := url.URL{Scheme: "http", Host: s.get.addr, Path: s.get.path}
	to, err := base.Parse(ref)
	if err != nil || to.Host != base.Host {
		return fmt.Errorf("the address is %q: %w", ref, err)
	}
	s.address = to.RequestURI()
	close(s.opened)
	return nil
}

// take takes a message of the stream.
func (s *stream) take(m message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case m.Method == "":
		waiting, asked := s.answers[string(m.ID)]
		switch {
		case !asked:
			return fmt.Errorf("a response to nothing came: %+v", m)
		case waiting == nil:
			return fmt.Errorf("a second response came: %+v", m)
		}
		s.answers[string(m.ID)] = nil
		waiting <- m
	case m.ID != nil:
		return fmt.Errorf("the backend asks for %s", m.Method)
	case m.Method == "notifications/tools/list_changed":
		s.a.told.Add(1)
	case m.Method == "notifications/progress":
		var p struct {
			Token string `json:"progressToken"`
		}
		if json.Unmarshal(m.Params, &p) != nil || !strings.HasPrefix(p.Token, s.a.name+"/") {
			return fmt.Errorf("progress of others came: %s", m.Params)
		}
	default:
		return fmt.Errorf("%s came", m.Method)
	}
	return nil
}

// ask posts a request and waits for the response on the stream.
func (s *stream) ask(c *caller, id, body string) (reply, error) {
	response := make(chan message, 1)
	s.mu.Lock()
	s.answers[id] = response
	s.mu.Unlock()
	if err := s.post(c, body); err != nil {
		return reply{}, err
	}
	timer := time.NewTimer(c.patience)
	defer timer.Stop()
	select {
	case m := <-response:
		return reply{status: http.StatusAccepted, answer: &m}, nil
	case <-s.ended:
	case <-timer.C:
		return reply{status: http.StatusAccepted}, errSilent
	}
	select {
	case m := <-response:
		return reply{status: http.StatusAccepted, answer: &m}, nil
	default:
		return reply{status: http.StatusAccepted}, s.broke()
	}
}

// post posts a message, which is accepted unless the stream is about to end.
func (s *stream) post(c *caller, body string) error {
	got, err := c.post(body)
	switch {
	case err != nil:
		return err
	case got.status == http.StatusAccepted && got.body == "":
		return nil
	case got.status == http.StatusNotFound:
		timer := time.NewTimer(soon)
		defer timer.Stop()
		select {
		case <-s.ended:
			return s.broke()
		case <-timer.C:
		}
	}
	return fmt.Errorf("the answer is %d %.300q", got.status, got.body)
}

// broke is what requests have to go by when the stream has ended.
func (s *stream) broke() error {
	if errors.Is(s.err, io.EOF) {
		return connectionError{err: s.err}
	}
	return s.err
}

// close ends the stream. Then nobody may post to its address for long.
func (s *stream) close(c *caller) {
	if s.over() {
		return
	}
	s.closing.Store(true)
	_ = s.get.c.Close()
	<-s.ended
	w, from, deadline := s.a.w, time.Now(), time.Now().Add(soon)
	for {
		got, err := c.post(`{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`)
		switch {
		case err != nil:
			c.hangUp()
			if !w.excuses(err, from) {
				w.ledger.defect(nil, "%s: posting after the end of the stream: %v", s.a.name, err)
			}
			return
		case got.status == http.StatusNotFound:
			return
		case time.Now().After(deadline):
			w.ledger.defect(nil, "%s: after the end of the stream a message is answered with %d %q", s.a.name, got.status, got.body)
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// drop ends the stream without looking back.
func (s *stream) drop() {
	s.closing.Store(true)
	if !s.over() {
		_ = s.get.c.Close()
	}
	<-s.ended
}
