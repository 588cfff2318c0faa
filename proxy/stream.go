package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/proxy/http1"
)

const (
	headerLastEvent = "Last-Event-Id"

	// writeTimeout is how long a client's connection may refuse to take what is
	// written to its stream.
	writeTimeout = 10 * time.Second
)

// maxStreams is how many streams one session may have open: the oldest ends when
// there are more.
const maxStreams = 8

var errStreamOver = errors.New("the stream ended")

// clientStream is one listening stream of a client. Its life is that of the
// client's request, whatever becomes of the backend. Everybody may write to it.
type clientStream struct {
	w     http.ResponseWriter
	rc    *http.ResponseController
	every time.Duration // a comment after this much silence
	first func()        // called before the first byte
	stop  context.CancelCauseFunc

	mu     sync.Mutex
	begun  bool
	over   bool // nothing may be written any more
	own    bool // it gets nothing that is meant for the session
	timer  *time.Timer
	buffer []byte
}

// end ends the stream; its handler returns then.
func (c *clientStream) end() { c.stop(errStreamOver) }

// adopt takes over a stream whose header the client has.
func (c *clientStream) adopt() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.begun = true
	c.timer = time.AfterFunc(c.every, c.keepAlive)
}

// begin sends the header, once.
func (c *clientStream) begin() error { return c.write(nil) }

// write writes complete events or comments and flushes them.
func (c *clientStream) write(raw []byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.put(raw)
}

func (c *clientStream) put(raw []byte) error {
	switch {
	case c.over:
		return errStreamOver
	case c.begun && len(raw) == 0:
		return nil // nothing is sent, so the silence goes on
	}

	err := c.rc.SetWriteDeadline(time.Now().Add(writeTimeout))
	if errors.Is(err, http.ErrNotSupported) {
		err = nil
	}

	if err == nil && !c.begun {
		c.begun = true
		c.first()
		streamHeader(c.w.Header())
		c.w.WriteHeader(http.StatusOK)
		c.timer = time.AfterFunc(c.every, c.keepAlive)
	}

	if err == nil && len(raw) > 0 {
		_, err = c.w.Write(raw) //nolint:gosec // no browser takes an event stream for a page
	}

	if err == nil {
		err = c.rc.Flush()
	}

	if err != nil {
		c.over = true
		c.stop(errStreamOver)

		return err
	}

	c.timer.Reset(c.every)

	return nil
}

// keepAlive writes a comment line.
func (c *clientStream) keepAlive() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.buffer = appendComment(c.buffer[:0], "keep-alive")
	_ = c.put(c.buffer)
}

// setPrivate takes the stream out of those on which the session listens.
func (c *clientStream) setPrivate() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.own = true
}

func (c *clientStream) isPrivate() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.own
}

// close makes sure that nothing is written once the handler has returned.
func (c *clientStream) close() {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.over = true

	if c.timer != nil {
		c.timer.Stop()
	}

	// It would hold for what comes next on the connection.
	_ = c.rc.SetWriteDeadline(time.Time{})
}

// attach adds a stream to a session that is alive.
func (s *session) attach(c *clientStream) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.ended || s.silent {
		return false
	}

	if len(s.streams) >= maxStreams {
		s.streams[0].end()
	}

	s.streams = append(s.streams, c)

	return true
}

func (s *session) detach(c *clientStream) {
	s.touch(time.Now())
	s.mu.Lock()
	s.streams = slices.DeleteFunc(s.streams, func(o *clientStream) bool { return o == c })
	s.mu.Unlock()
	c.close()
}

// streaming is the number of open streams.
func (s *session) streaming() int {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.streams)
}

// endStreams ends the session's streams.
func (s *session) endStreams() {
	s.mu.Lock()
	streams := slices.Clone(s.streams)
	s.mu.Unlock()

	for _, c := range streams {
		c.end()
	}
}

// quiet makes a session without a server do nothing any more.
func (s *session) quiet() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.silent = true

	if s.notices.timer != nil {
		s.notices.timer.Stop()
	}
}

// deliver writes an event to one of the session's streams: the newest that takes
// it, as older ones may belong to connections that the client has given up. (MCP
// 2025-11-25 "Multiple Connections": each message on only one stream.)
func (s *session) deliver(raw []byte) bool {
	s.mu.Lock()
	streams := slices.Clone(s.streams)
	s.mu.Unlock()

	for _, c := range slices.Backward(streams) {
		if !c.isPrivate() && c.write(raw) == nil {
			return true
		}
	}

	return false
}

// serveGet serves a client's listening stream.
func (p *Proxy) serveGet(w http.ResponseWriter, r *http.Request, cfg *Config, to address) {
	srv, start := to.srv, time.Now()
	out := outcomeClientError

	defer func() { srv.metrics.ended(methodStream, out) }()

	forward, err := to.forward(cfg, r)
	if err != nil {
		refuse(w, http.StatusBadRequest, nil, codeInvalid, err.Error())
		return
	}

	ids := sessionIDs(r.Header)
	if len(ids) == 0 || r.Header.Get(headerVersion) >= modernVersion {
		out = srv.plain(w, r, forward, "")
		return
	}

	sess, status := srv.sessionOf(r.Context(), ids, forward)
	if status != 0 {
		refuseID(w, status, nil)
		return
	}

	from := r.Header.Get(headerLastEvent)

	switch {
	case len(from) > maxLastEvent || !http1.IsValue(from):
		refuse(w, http.StatusBadRequest, nil, codeInvalid, "the last event id is malformed, or too long")
		return
	case !acceptsStream(r.Header):
		out = srv.plain(w, r, forward, sess.target().backend)
		return
	}

	delete(forward, "Accept-Encoding")
	delete(forward, headerLastEvent)

	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)

	c := &clientStream{w: w, rc: http.NewResponseController(w), every: cfg.KeepAlive, stop: cancel, first: func() {
		srv.metrics.firstByte(methodStream, time.Since(start))
		sess.opened()
	}}

	if !sess.attach(c) {
		refuseID(w, http.StatusNotFound, nil)
		return
	}
	defer sess.detach(c)

	srv.metrics.streams.Inc()
	defer srv.metrics.streams.Dec()

	// A stream that ends because the sidecar does leaves a connection that is about
	// to be closed: the client must not send its next request on it.
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}

	if p.draining.Load() {
		c.end()
	}

	l := &listener{sess: sess, srv: srv, c: c, forward: forward, query: r.URL.RawQuery}
	out = l.serve(ctx, from)
}

// maxLastEvent bounds the event id of a client.
const maxLastEvent = 1 << 10
