package proxy

import (
	"bytes"
	"context"
	"time"
)

// initialized answers a client's initialize with the backend's result and a
// session id of the sidecar's own.
func (x *exchange) initialized(ctx context.Context, a *answer, rpc *message) step {
	x.establish(ctx, a, rpc)

	body, _ := withListChanged(a.head)

	if x.out.begun {
		if x.out.message(a.StatusCode, bytes.TrimSpace(body)) != nil {
			x.outcome = outcomeClosed
		}

		return done
	}

	h := x.out.w.Header()
	responseHeader(h, a.Header)
	setLength(h, int64(len(body)))
	x.out.header(a.StatusCode)

	if _, err := x.out.w.Write(body); err != nil {
		x.outcome = outcomeClosed
	}

	return done
}

// establish makes the client's session and puts its id into the answer's header.
func (x *exchange) establish(ctx context.Context, a *answer, rpc *message) {
	backend, ok := backendSession(a.Header)
	if !ok {
		x.srv.logger.Warn("the backend gave an unusable session id, it is taken for one that gives none")

		backend = ""
	}

	version := stringMember(rpc.result.of(a.head), memberProtocol)

	sess := x.early
	if sess == nil {
		sess = x.newSession(ctx, backend, version)
	}

	if sess == nil {
		return
	}

	sess.mu.Lock()
	sess.backend, sess.version, sess.lost = backend, version, false

	if x.waited > 0 {
		sess.budget = max(0, x.hold.budget)
	}
	sess.mu.Unlock()

	if x.early != nil {
		sess.save(ctx) // the id doesn't say it
	}
}

// establishEarly makes the session of a client that waits for the backend: what
// the backend will say about it isn't in the id, but in the store.
func (x *exchange) establishEarly(ctx context.Context) {
	x.early = x.newSession(ctx, "", "")
}

// newSession makes a session with an id of its own and puts that into the answer's
// header. It returns nil when there can be none.
func (x *exchange) newSession(ctx context.Context, backend, version string) *session {
	claims := newSession(time.Now())
	claims.server = x.srv.name
	claims.path = x.r.URL.Path
	claims.version = version
	claims.conversation = string(x.to.conv)
	claims.agentServer = x.r.Header.Get(headerAgentServer)
	claims.principal = string(principalOf(x.forward))
	claims.backend = backend

	if err := claims.setParams(x.env.messages[0].params.of(x.body)); err != nil {
		x.srv.logger.Warn("a client gets no session", "err", err)
		return nil
	}

	id, spill, err := x.p.keys.sealSession(claims)
	if err != nil {
		x.srv.logger.Warn("a client gets no session", "err", err)
		return nil
	}

	if spill != nil {
		if err := x.p.blobs.PutBlob(ctx, bucketSpills, claims.key(), spill, x.cfg.SessionTTL); err != nil {
			x.srv.logger.Warn("storing a large session failed, it won't outlive a restart", "err", err)
		}
	}

	sess := x.srv.newSession(id, claims)
	sess.credentials = ownHeader(x.forward)

	x.srv.admit(sess)
	x.out.w.Header().Set(headerSession, id)

	return sess
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
