package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// sessions are the sessions of one server that are held in memory, by the id that
// the client has. Any other session can be opened from its sealed id at any time.
type sessions struct {
	mu   sync.RWMutex
	byID map[string]*session
}

func (t *sessions) get(id string) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()

	return t.byID[id]
}

// add returns the session that is in the table under the id: s, or the one that
// came first.
func (t *sessions) add(s *session) (*session, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()

	if have := t.byID[s.id]; have != nil {
		return have, false
	}

	t.byID[s.id] = s

	return s, true
}

func (t *sessions) remove(s *session) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.byID[s.id] != s {
		return false
	}

	delete(t.byID, s.id)

	return true
}

// all returns the sessions at this moment.
func (t *sessions) all() []*session {
	t.mu.RLock()
	defer t.mu.RUnlock()

	all := make([]*session, 0, len(t.byID))
	for _, s := range t.byID {
		all = append(all, s)
	}

	return all
}

func (t *sessions) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()

	return len(t.byID)
}

// openSession finds the session of an id that a client sent: in memory, else from
// the sealed id and what the store says has changed since. The error is
// errMalformedSession, errForeignSession (ended sessions included), or one of the
// store where the id alone isn't enough.
func (s *server) openSession(ctx context.Context, id string) (*session, error) {
	if have := s.sessions.get(id); have != nil {
		if have.target().ended {
			return nil, errForeignSession
		}

		return have, nil
	}

	claims, err := s.p.keys.openSession(id)
	if err != nil {
		return nil, err
	}

	if claims.server != s.name {
		return nil, errForeignSession
	}

	if claims.spilled {
		spill, err := s.p.blobs.Blob(ctx, bucketSpills, claims.key())
		if errors.Is(err, conversation.ErrNotFound) {
			return nil, errForeignSession
		}

		if err != nil {
			return nil, fmt.Errorf("reading a session: %w", err)
		}

		if err := s.p.keys.unspill(&claims, spill); err != nil {
			return nil, errForeignSession
		}
	}

	sess := s.newSession(id, claims)
	sess.initialized, sess.inherited = true, true

	o, err := s.override(ctx, sess.key)
	if err != nil {
		s.logger.Warn("reading a session's state failed, its id alone is used", "err", err)
	} else {
		sess.apply(&o)
	}

	if sess.ended {
		return nil, errForeignSession
	}

	return s.admit(sess), nil
}

// admit puts a session into the table and returns the one that is there.
func (s *server) admit(sess *session) *session {
	have, added := s.sessions.add(sess)
	if added {
		s.metrics.sessions.Inc()
	}

	return have
}

func (s *server) newSession(id string, claims sessionClaims) *session {
	sess := &session{
		srv: s, id: id, key: claims.key(), version: claims.version, lost: claims.version == "", conv: conversation.ID(claims.conversation),
		claims: claims, backend: claims.backend, principal: principalOfClaims(&claims), budget: -1,
		pump: make(chan struct{}, 1),
	}
	sess.touch(time.Now())

	return sess
}

// override reads what changed about a session; the zero value when nothing did.
func (s *server) override(ctx context.Context, key string) (override, error) {
	value, err := s.p.blobs.Blob(ctx, bucketSessions, key)
	if errors.Is(err, conversation.ErrNotFound) {
		return override{}, nil
	}

	if err != nil {
		return override{}, fmt.Errorf("reading the store: %w", err)
	}

	if value, err = s.p.keys.Open(purposeOverride, value, []byte(key)); err != nil {
		return override{}, fmt.Errorf("reading a stored session: %w", err)
	}

	var o override
	if err := json.Unmarshal(value, &o); err != nil {
		return override{}, fmt.Errorf("reading a stored session: %w", err)
	}

	return o, nil
}

// drop forgets a session; its id stays good unless it was closed.
func (s *server) drop(sess *session) {
	if s.sessions.remove(sess) {
		s.metrics.sessions.Dec()
	}
}

// evict forgets the sessions that have been idle since before the limit and ends
// them on the backend. Their clients may return: the session is then opened from
// its id and re-created.
func (s *server) evict(ctx context.Context, limit time.Time) {
	var err error

	for _, sess := range s.sessions.all() {
		if since, idle := sess.idleSince(); !idle || since.After(limit) {
			continue
		}

		s.drop(sess)

		if err == nil {
			err = s.endUpstream(ctx, sess)
		}
	}

	if err != nil {
		s.logger.Debug("ending idle sessions on the backend failed", "err", err)
	}
}

// endUpstreamTimeout bounds the sidecar's own DELETE of an idle session.
const endUpstreamTimeout = 5 * time.Second

// endUpstream ends an idle session on the backend with the credentials of its last
// request. It is a courtesy: nothing depends on it.
func (s *server) endUpstream(ctx context.Context, sess *session) error {
	sess.mu.Lock()
	backend, version, ended, h := sess.backend, sess.version, sess.ended, sess.credentials
	sess.mu.Unlock()

	if v := s.gate.look(); backend == "" || ended || h == nil || v.away {
		return nil
	}

	ctx, cancel := context.WithTimeout(ctx, endUpstreamTimeout)
	defer cancel()

	resp, _, err := s.send(ctx, outgoing{method: http.MethodDelete, header: h, session: backend, version: versionHeader(version)})
	if err != nil {
		return err
	}

	discard(resp)

	return nil
}
