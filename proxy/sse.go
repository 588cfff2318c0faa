package proxy

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

// The transport of 2024-11-05 ("HTTP with SSE"): a client opens a stream, learns
// from its first event where to post messages, and finds every answer on the
// stream. The stream is the session. Here the client's stream and the address that
// it posts to stay the same for as long as the client stays, while streams of the
// backend come and go behind them: sse_link.go has one stream of the backend,
// sse_message.go one message of the client.

const (
	// paramSession names the session in the address that a client posts to.
	paramSession = "sessionId"

	// acceptAfter is how long a client's POST waits for the backend's own answer
	// to it before it gets 202: some clients give a POST only 5 s.
	acceptAfter = 2 * time.Second
)

// sseSession is one client of the old transport.
type sseSession struct {
	sess    *session // what it shares with clients of the other transports
	srv     *server
	c       *clientStream
	forward http.Header // of the client's GET
	query   string      // of the client's GET
	address string      // that the client posts to
	opening sync.Once
	late    *time.Timer // opens the client's stream when the backend is long away
	tasks   tasks       // messages of the client, and what else ends with its stream

	// Of the goroutine that serves the stream.
	fails   int    // tries in a row to open the backend's stream
	odd     int    // answers to that which made no sense
	process uint64 // that was tried last
	result  outcome

	mu      sync.Mutex
	link    *sseLink      // the backend's stream, nil while it has none
	changed chan struct{} // closed when link changes
	params  []byte        // of the client's initialize, once the backend answered it
	said    bool          // the client said that it is initialised
	first   *sseMessage   // the message that says so: no other overtakes it
	running map[*sseMessage]struct{}
	ending  bool // the stream ends with the last of them
	refused bool // the session is over, and messages are told so
}

// serveSSE serves both addresses of the old transport, which are one here.
func (p *Proxy) serveSSE(w http.ResponseWriter, r *http.Request, cfg *Config, to address) {
	id := r.URL.Query().Get(paramSession)

	switch {
	case r.Method == http.MethodGet:
		p.serveSSEStream(w, r, cfg, to)
	case r.Method == http.MethodPost && id != "":
		p.serveSSEMessage(w, r, cfg, to, id)
	default:
		// Clients that know the newer transports too try them first, and need a
		// status of 4xx to go on (MCP 2025-11-25 "Backwards Compatibility").
		w.Header().Set("Allow", "GET")
		refuse(w, http.StatusMethodNotAllowed, nil, codeInvalid,
			"this server speaks HTTP+SSE of 2024-11-05: open its event stream with GET")
	}
}

// serveSSEStream serves a client's stream.
func (p *Proxy) serveSSEStream(w http.ResponseWriter, r *http.Request, cfg *Config, to address) {
	srv, start := to.srv, time.Now()
	out := outcomeClientError

	defer func() { srv.metrics.ended(methodStream, out) }()

	forward, err := to.forward(cfg, r)
	if err != nil {
		refuse(w, http.StatusBadRequest, nil, codeInvalid, err.Error())
		return
	}

	if p.draining.Load() {
		out = unavailable(w, errStopping)
		return
	}

	delete(forward, "Accept-Encoding")
	delete(forward, headerLastEvent) // nothing can be resumed in this transport

	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)

	s, err := srv.newSSESession(r, to, forward)
	if err != nil {
		srv.logger.Error("a client gets no session", "err", err)
		out = unavailable(w, err)

		return
	}

	s.c = &clientStream{
		w: w, rc: http.NewResponseController(w), every: cfg.KeepAlive,
		stop:  func(cause error) { s.stop(func() { cancel(cause) }) },
		first: func() { srv.metrics.firstByte(methodStream, time.Since(start)) },
	}

	srv.admit(s.sess)
	defer srv.drop(s.sess)

	if !s.sess.attach(s.c) {
		out = unavailable(w, errStopping)
		return
	}
	defer s.sess.detach(s.c)

	srv.sse.Store(s.sess.id, s)
	defer srv.sse.Delete(s.sess.id)

	srv.metrics.streams.Inc()
	defer srv.metrics.streams.Dec()

	out = s.serve(ctx, cfg)
}

func (s *server) newSSESession(r *http.Request, to address, forward http.Header) (*sseSession, error) {
	claims := newSession(time.Now())
	claims.server, claims.path, claims.conversation = s.name, r.URL.Path, string(to.conv)
	claims.agentServer, claims.principal = r.Header.Get(headerAgentServer), string(principalOf(forward))

	id, _, err := s.p.keys.sealSession(claims)
	if err != nil {
		return nil, err
	}

	sess := s.newSession(id, claims)
	sess.credentials, sess.unstored = ownHeader(forward), true

	return &sseSession{
		sess: sess, srv: s, forward: forward, query: r.URL.RawQuery,
		address: relative(r.URL.EscapedPath()) + "?" + paramSession + "=" + id,
		changed: make(chan struct{}), result: outcomeOK,
	}, nil
}

// relative refers to a path from itself, so that it stays the client's path also
// where something in front of the sidecar has taken a prefix off it.
func relative(path string) string {
	last := path[strings.LastIndexByte(path, '/')+1:]
	if last == "" || strings.Contains(last, ":") {
		return "./" + last
	}

	return last
}

// serve runs until the client leaves or its session ends.
func (s *sseSession) serve(ctx context.Context, cfg *Config) outcome {
	s.late = time.AfterFunc(cfg.HeldComment, func() { _ = s.begin() })
	defer s.late.Stop()

	for ctx.Err() == nil {
		if s.once(ctx) {
			break
		}
	}

	s.sess.quiet()
	s.tasks.stop()

	if s.result == outcomeOK && s.c.decline() {
		s.result = unavailable(s.c.w, errStopping) // or nobody is there to see it
	}

	return s.result
}

// begin opens the client's stream with the event that it waits for.
func (s *sseSession) begin() (err error) {
	s.opening.Do(func() {
		err = s.c.write(appendEvent(nil, typeEndpoint, "", []byte(s.address)))
	})

	return err
}

// typeEndpoint is the type of the event that says where to post messages.
const typeEndpoint = "endpoint"

// stop ends the stream. When the sidecar is about to go, answers that are still to
// come on it come first.
func (s *sseSession) stop(cancel func()) {
	quiet := s.srv.gate.look().quiet

	s.mu.Lock()
	defer s.mu.Unlock()

	if quiet && len(s.running) > 0 {
		s.ending = true
		return
	}

	cancel()
}

// ran notes that a message is dealt with.
func (s *sseSession) ran(m *sseMessage) {
	if m.saysInitialized() { // whether the backend was told so by the client or for it
		s.sess.setInitialized()
	}

	s.mu.Lock()
	delete(s.running, m)
	end := s.ending && len(s.running) == 0
	s.mu.Unlock()

	if end {
		s.c.end()
	}
}

// set puts a stream of the backend in place, or takes it away.
func (s *sseSession) set(l *sseLink) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.link = l
	close(s.changed)
	s.changed = make(chan struct{})
}

// life names the backend's session that there is now. The process doesn't matter:
// a session that is still there is in the process that it was in.
func (s *sseSession) life() life {
	s.sess.mu.Lock()
	defer s.sess.mu.Unlock()

	return life{renewal: s.sess.renewals}
}

// refuse ends the session for good: what the client has under way gets an error
// when its stream has begun, else the stream becomes an answer of another kind.
func (s *sseSession) refuse(answer func(http.ResponseWriter)) {
	s.result = outcomeClientError

	if s.c.decline() {
		answer(s.c.w)
		return
	}

	s.mu.Lock()
	s.refused = true
	s.mu.Unlock()
}

// decline makes sure that the stream never begins, and reports whether it has not.
func (c *clientStream) decline() bool {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.begun {
		return false
	}

	c.over = true

	return true
}

// serveSSEMessage serves messages that a client posts.
func (p *Proxy) serveSSEMessage(w http.ResponseWriter, r *http.Request, cfg *Config, to address, id string) {
	m := &sseMessage{
		exchange: &exchange{p: p, srv: to.srv, cfg: cfg, r: r, to: to, start: time.Now(), label: "other", outcome: outcomeClientError},
		complete: make(chan struct{}), reply: make(chan *answer, 1),
	}

	to.srv.metrics.inFlight.Inc()

	if !m.read(w) {
		m.ended()
		return
	}

	m.acceptsStream = false // the answer comes on another stream

	s, status := to.srv.sseSessionOf(id, m.forward)
	if status == 0 && !s.post(r.Context(), m) {
		status = http.StatusNotFound
	}

	if status != 0 {
		m.ended()
		refuseID(w, status, m.env.messages[0].id)

		return
	}

	timer := time.NewTimer(acceptAfter)
	defer timer.Stop()

	select {
	case a := <-m.reply:
		m.writeReply(w, a)
	case <-timer.C:
		m.tell(nil)
		m.writeReply(w, <-m.reply)
	case <-r.Context().Done():
		m.tell(nil) // the message stays: it was read as a whole
	}
}

// sseSessionOf finds the session that a client posts to, or the status to refuse
// it with. There are only those that have their stream open here.
func (s *server) sseSessionOf(id string, h http.Header) (*sseSession, int) {
	if !validSessionID(id) {
		return nil, http.StatusBadRequest
	}

	found, _ := s.sse.Load(id)

	sess, ok := found.(*sseSession)
	if !ok || sess.sess.stranger(h) {
		return nil, http.StatusNotFound
	}

	return sess, 0
}
