package proxy

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"sync"
	"time"
)

const (
	// alivePingTimeout bounds the ping that shows whether a session is still
	// there.
	alivePingTimeout = 5 * time.Second
	// maxFlights bounds the requests of one client that have no response.
	maxFlights = 1024
)

// sseLink is one stream of the backend, and so one session of it.
type sseLink struct {
	s       *sseSession
	stream  *http.Request // that opened it
	conf    *Server       // as it was then
	process uint64        // that the gate told of then
	end     context.CancelFunc
	gone    chan struct{} // closed when it has ended and all that came on it was passed on
	used    bool          // a message came on it

	mu      sync.Mutex
	address *url.URL // to post messages to
	flights map[string][]*sseMessage
	count   int                    // of them
	own     map[string]chan []byte // who waits for a response to a request of the sidecar's own
	asked   int                    // number of these requests
	told    bool                   // the backend was told for the client that it is initialised
}

// errLinkGone refuses a message for a stream that has ended.
var errLinkGone = errors.New("the backend's stream has ended")

// begin reads up to the event that says where to post messages.
func (l *sseLink) begin(events *eventReader) error {
	for {
		ev, err := events.Next()
		if err != nil {
			return err
		}

		if ev.typ == typeEndpoint && ev.hasData {
			return l.moved(ev.data)
		}
	}
}

// serve makes the stream the client's session, and passes on what comes until it
// ends.
func (l *sseLink) serve(ctx, bound context.Context, events *eventReader, ready func()) (over bool) {
	s, start := l.s, time.Now()

	s.mu.Lock()
	params := s.params
	s.mu.Unlock()

	var (
		running sync.WaitGroup
		failed  error // of the handshake
	)

	running.Go(func() {
		defer ready()

		if params != nil {
			if failed = l.reinitialize(bound, params); failed != nil {
				l.end()
				return
			}
		}

		s.set(l)
		ready()
		l.watch(bound)
	})

	err := l.read(bound, events)
	broke := bound.Err() == nil

	l.end()
	running.Wait()
	s.set(nil)
	s.nextLife()
	close(l.gone)

	if l.used || time.Since(start) > reopenFresh {
		s.fails = 0
	}

	switch {
	case errors.Is(err, errEndpoint):
		return s.refuseEndpoint(err)
	case errors.Is(err, errStreamOver):
		return true
	case ctx.Err() != nil:
	case failed != nil:
		return s.notReinitialized(failed)
	case broke:
		level := slog.LevelDebug
		if errors.Is(err, errEventTooLarge) {
			level = slog.LevelWarn
		}

		s.srv.logger.Log(ctx, level, "the backend's stream of a session ended", "err", err)

		if !errors.Is(err, io.EOF) {
			s.srv.gate.broke()
		}

		s.srv.doubt("stream_ended")
	}

	return false
}

// nextLife notes that the backend's session is gone.
func (s *sseSession) nextLife() {
	s.sess.mu.Lock()
	defer s.sess.mu.Unlock()

	s.sess.renewals++
}

// watch ends the stream when the process behind it turns out to be another one
// although the connection doesn't show that.
func (l *sseLink) watch(ctx context.Context) {
	gate, process, away := l.s.srv.gate, l.process, false

	for {
		v := gate.look()

		switch {
		case moved(l.conf.Upstream, l.s.srv.conf().Upstream):
			l.end()
			return
		case v.state.Phase == Away:
			away = true
		case !v.away && (away || v.process != process):
			if !l.alive(ctx) {
				l.end()
				return
			}

			process, away = v.process, false
		}

		select {
		case <-v.changed:
		case <-ctx.Done():
			return
		}
	}
}

// alive reports whether the backend still serves the session.
func (l *sseLink) alive(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, alivePingTimeout)
	defer cancel()

	_, err := l.ask(ctx, methodPing, nil)

	return err == nil
}
