package proxy

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Methods and values of the protocol that are looked at in more than one place.
const (
	methodInitialize  = "initialize"
	methodInitialized = "notifications/initialized"
	methodCancelled   = "notifications/cancelled"
	methodProgress    = "notifications/progress"
	methodCall        = "tools/call"
	methodList        = "tools/list"
	methodPing        = "ping"
	methodListen      = "subscriptions/listen"
	methodDiscover    = "server/discover"

	// modernVersion is the first revision without sessions: each request says
	// everything about itself.
	modernVersion = "2026-07-28"
)

// exchange is one POST of a client on its way to the backend and back.
type exchange struct {
	p    *Proxy
	srv  *server
	cfg  *Config
	r    *http.Request
	to   address
	out  reply
	sess *session // nil without one

	env           envelope
	one           [1]message // of env, where there is only one
	body          []byte
	label         string // method label of metrics
	forward       http.Header
	init          bool // a client's initialize
	calls         bool // there is a tools/call
	lists         bool // there is a tools/list
	discovers     bool // a client's server/discover
	listens       bool // a client's subscriptions/listen
	requests      int  // messages that want an answer
	acceptsStream bool

	start   time.Time
	hold    holding
	waited  time.Duration // time it was held
	repeats int           // tries after one that the backend may have begun with
	renews  int           // times that the session was re-created for it
	odd     int           // answers that made no sense
	hints   []ToolHints   // of called tools that may perhaps be called again

	began     *view     // of the gate when the last try went out
	beganAt   time.Time // when that was
	cancelled bool      // by the client, while it was held
	unsettled bool      // it goes out while the tool list is unsettled
	alone     bool      // it goes out without a verdict
	early     *session  // of an initialize whose client has its header already
	answers   []life    // of the requests that the messages answer
	sent      bool      // an event of an answer went to the client
	answered  []string  // requests that have their answer, by idKey
	outcome   outcome
	traced    func(outcome string) // nil without a trace
}

// step says what to do after a try.
type step int

const (
	done  step = iota + 1 // the client has its answer
	again                 // try again
)

// servePost serves JSON-RPC messages.
func (p *Proxy) servePost(w http.ResponseWriter, r *http.Request, cfg *Config, to address) {
	x := &exchange{p: p, srv: to.srv, cfg: cfg, r: r, to: to, start: time.Now(), label: "other", outcome: outcomeClientError}
	x.out.begin(w, func() { x.srv.metrics.firstByte(x.label, time.Since(x.start)) })

	x.srv.metrics.inFlight.Inc()

	defer func() {
		x.srv.metrics.inFlight.Dec()
		x.srv.metrics.ended(x.label, x.outcome)
		x.endTrace()
	}()

	ctx := r.Context()

	if !x.read(w) || !x.openSession(ctx, w) {
		return
	}

	if x.sess != nil {
		x.sess.begin(x.start)
		defer func() { x.sess.end(time.Now()) }()
	}

	if x.relay(ctx) || x.handled() {
		return
	}

	if x.listens && x.sess == nil {
		x.listen(ctx)
		return
	}

	x.run(ctx, x.try)

	if x.early != nil && x.early.target().lost {
		x.early.close(ctx) // it never came to be
	}
}

// read reads and classifies the body. It returns false when it refused it.
func (x *exchange) read(w http.ResponseWriter) bool {
	if e := x.r.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		refuse(w, http.StatusUnsupportedMediaType, nil, codeInvalid, "compressed requests are not supported: send the body as it is")
		return false
	}

	body, status, err := readBody(w, x.r, x.cfg)
	if err != nil {
		if status == http.StatusBadRequest {
			x.outcome = outcomeClosed
		}

		refuse(w, status, nil, codeInvalid, err.Error())

		return false
	}

	x.body = body
	x.hold.bytes = int64(len(body))

	if x.env, err = readEnvelopeInto(body, x.one[:]); err != nil {
		code := codeInvalid
		if bad, ok := errors.AsType[*envelopeError](err); ok {
			code = bad.code
		}

		refuse(w, http.StatusBadRequest, nil, code, err.Error())

		return false
	}

	x.classify()

	if x.forward, err = x.to.forward(x.cfg, x.r); err != nil {
		refuse(w, http.StatusBadRequest, nil, codeInvalid, err.Error())
		return false
	}

	// What is compressed can't be looked at; the hop is a short one.
	delete(x.forward, "Accept-Encoding")

	if x.p.trace != nil && !x.listens { // a subscription has no end to speak of
		x.traced = x.p.trace(x.srv.name, x.label, x.start, x.forward)
	}

	return true
}

func (x *exchange) endTrace() {
	if x.traced != nil {
		x.traced(string(x.outcome))
	}
}

// classify notes what the messages want.
func (x *exchange) classify() {
	for i := range x.env.messages {
		m := &x.env.messages[i]
		if m.kind == kindRequest {
			x.requests++
		}

		x.calls = x.calls || m.method == methodCall
		x.lists = x.lists || m.method == methodList
	}

	conf := x.srv.conf()
	m := &x.env.messages[0]
	x.label = methodLabel(&x.env)
	single := !x.env.batch && m.kind == kindRequest
	x.init = single && m.method == methodInitialize && !modern(m)
	x.discovers = single && m.method == methodDiscover
	x.listens = single && m.method == methodListen
	x.acceptsStream = x.requests > 0 && acceptsStream(x.r.Header)

	x.hold.budget = conf.Hold
	if x.calls {
		x.hold.budget = conf.HoldCall
	}
}

func modern(m *message) bool { return m.metaVersion >= modernVersion }

func acceptsStream(h http.Header) bool {
	for _, v := range h["Accept"] {
		if strings.Contains(v, typeEventStream) {
			return true
		}
	}

	return false
}

// openSession finds the session that the request names. It returns false when it
// refused the request.
func (x *exchange) openSession(ctx context.Context, w http.ResponseWriter) bool {
	ids := sessionIDs(x.r.Header)
	first := &x.env.messages[0]

	if len(ids) == 0 || modern(first) {
		return true // requests without an id pass as they are
	}

	sess, status := x.srv.sessionOf(ctx, ids, x.forward)
	if status != 0 {
		refuseID(w, status, first.id)
		return false
	}

	if !x.init { // initialize begins a new one
		x.sess = sess
	}

	if x.sess == nil {
		return true
	}

	if x.to.conv == "" {
		x.to.conv = sess.conv
	}

	if x.lists {
		x.hold.budget = sess.takeBudget(x.hold.budget)
	}

	return true
}

// sessionIDs are the session ids that a request names. An empty one is none.
func sessionIDs(h http.Header) []string {
	if ids := h[headerSession]; len(ids) != 1 || ids[0] != "" {
		return ids
	}

	return nil
}

// sessionOf finds the session of a request, or the status to refuse it with.
func (s *server) sessionOf(ctx context.Context, ids []string, h http.Header) (*session, int) {
	if len(ids) != 1 {
		return nil, http.StatusBadRequest
	}

	sess, err := s.openSession(ctx, ids[0])

	switch {
	case errors.Is(err, errMalformedSession):
		return nil, http.StatusBadRequest
	case errors.Is(err, errForeignSession):
		return nil, http.StatusNotFound
	case err != nil:
		s.logger.Warn("opening a session failed, its client must begin anew", "err", err)
		return nil, http.StatusNotFound
	case sess.stranger(h):
		return nil, http.StatusNotFound
	}

	return sess, 0
}

func refuseID(w http.ResponseWriter, status int, id []byte) {
	if status == http.StatusBadRequest {
		refuse(w, status, id, codeInvalid, errMalformedSession.Error())
		return
	}

	refuseSession(w, id)
}

// handled deals with messages that are about others. It returns true when they
// needn't reach the backend.
func (x *exchange) handled() bool {
	for i := range x.env.messages {
		if m := &x.env.messages[i]; m.kind == kindResponse && x.sess != nil {
			x.answers = append(x.answers, x.sess.answerTo(m))
		}
	}

	m := &x.env.messages[0]
	if x.env.batch || m.method != methodCancelled || m.cancelledID == nil {
		return false
	}

	// A request that is held never reaches the backend; one that the backend had
	// when it went away is gone with it.
	held := x.sess != nil && x.sess.cancelHeld(m.cancelledID)
	if !held && !x.srv.gate.look().away {
		return false
	}

	x.accept()

	return true
}

// late reports whether the messages are nothing but answers to an earlier process.
func (x *exchange) late() bool {
	if len(x.answers) < len(x.env.messages) {
		return false
	}

	now := x.sess.currentLife()

	return !slices.Contains(x.answers, now)
}

// accept answers messages that want no answer, whether the backend has got them or
// needn't.
func (x *exchange) accept() {
	if x.sess != nil && x.saysInitialized() {
		x.sess.setInitialized()
	}

	x.outcome = outcomeOK
	x.out.empty(http.StatusAccepted)
}

// answerTo returns the life of the backend's session that sent the request which
// the client answers.
func (s *session) answerTo(m *message) life {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.fence.answer(m.id, s.life())
}

func (s *session) currentLife() life {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.life()
}

// isAnswered reports whether the request with an id has its answer.
func (x *exchange) isAnswered(id []byte) bool {
	return len(x.answered) > 0 && slices.Contains(x.answered, idKey(id))
}

// requestKeys are the ids of the requests, for maps.
func (x *exchange) requestKeys() []string {
	keys := make([]string, 0, x.requests)

	for i := range x.env.messages {
		if m := &x.env.messages[i]; m.kind == kindRequest {
			keys = append(keys, idKey(m.id))
		}
	}

	return keys
}
