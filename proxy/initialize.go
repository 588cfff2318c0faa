package proxy

import (
	"strconv"
	"time"
)

// initialized answers a client's initialize with the backend's result and a
// session id of the sidecar's own.
func (x *exchange) initialized(a *answer, rpc *message) step {
	x.establish(a, rpc)

	body, _ := withListChanged(a.head)

	h := x.out.w.Header()
	responseHeader(h, a.Header)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	x.out.header(a.StatusCode)

	if _, err := x.out.w.Write(body); err != nil {
		x.outcome = outcomeClosed
	}

	return done
}

// establish makes the client's session and puts its id into the answer's header.
func (x *exchange) establish(a *answer, rpc *message) {
	backend, ok := backendSession(a.Header)
	if !ok {
		x.srv.logger.Warn("the backend gave an unusable session id, its answers are taken as sessionless")

		backend = ""
	}

	m := &x.env.messages[0]
	ctx := x.r.Context()

	claims := newSession(time.Now())
	claims.server = x.srv.name
	claims.path = x.r.URL.Path
	claims.version = stringMember(rpc.result.of(a.head), memberProtocol)
	claims.conversation = string(x.conversationID())
	claims.agentServer = x.r.Header.Get(headerAgentServer)
	claims.principal = string(principalOf(x.forward))
	claims.backend = backend

	if err := claims.setParams(m.params.of(x.body)); err != nil {
		x.srv.logger.Warn("a client gets no session that outlives a swap", "err", err)
		return
	}

	id, spill, err := x.p.keys.sealSession(claims)
	if err == nil && spill != nil {
		err = x.p.blobs.PutBlob(ctx, bucketSpills, claims.key(), spill, x.cfg.SessionTTL)
	}

	if id == "" {
		x.srv.logger.Warn("a client gets no session that outlives a swap", "err", err)
		return
	}

	if err != nil {
		x.srv.logger.Warn("storing a large session failed, it won't outlive a restart", "err", err)
	}

	sess := x.srv.newSession(id, claims)
	sess.credentials = ownHeader(x.forward)

	if x.held > 0 {
		sess.budget = max(0, x.hold.budget)
	}

	x.srv.admit(sess)
	x.out.w.Header().Set(headerSession, id)
}

// principalOfClaims is the principal that a sealed id names.
func principalOfClaims(c *sessionClaims) principal { return principal(c.principal) }

// setInitialized notes that the client has said that it is initialised: it may be
// told of changes from now on.
func (s *session) setInitialized() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.initialized = true
}

// takeBudget gives the first listing what the handshake left of the time that one
// client is kept waiting.
func (s *session) takeBudget(whole time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()

	left := s.budget
	s.budget = -1

	if left < 0 {
		return whole
	}

	return min(left, whole)
}
