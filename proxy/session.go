package proxy

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// maxSubscriptions bounds the resource subscriptions that a session remembers.
const maxSubscriptions = 1024

// session is one client's session: the id that the client has, and the backend's
// session behind it. What a successor needs of it is in the sealed id and, as far
// as it changed since, in the store.
type session struct {
	srv    *server
	id     string // as the client has it
	key    string // names it in the store
	conv   conversation.ID
	claims sessionClaims

	used atomic.Int64 // Unix time of the last use, in nanoseconds

	mu          sync.Mutex
	version     string // protocol revision that was agreed on, "" while it isn't known
	backend     string // the backend's own id, "" when it gives none
	renewals    uint64 // how often the backend's session was re-created
	lost        bool   // it must be re-created before the next use
	ended       bool
	silent      bool   // its server is gone
	unstored    bool   // it ends with its client's stream, and nothing of it is stored
	confirmed   uint64 // the process that last took a request of it, plus one
	knows       uint64 // generation of its last complete listing, 0 when there was none
	inherited   bool   // opened from its id: what its client was told isn't known
	initialized bool   // the client said so; always true for a session of a predecessor
	level       string
	subscribed  []string
	principal   principal
	credentials http.Header   // of the last accepted request: what the sidecar does by itself needs them
	budget      time.Duration // what initialize left of the hold budget; negative when there is no such limit
	busy        int
	renewing    *renewing
	fence       fence
	notices     notices
	events      eventIDs
	walk        walk
	held        map[string]context.CancelCauseFunc // held requests by idKey
	streams     []*clientStream                    // oldest first
	pump        chan struct{}                      // holds a token while the backend's stream is read
	rebind      context.CancelFunc                 // ends the backend's stream, to open another
}

// override is what changed about a session since its id was sealed.
type override struct {
	Backend    *string   `json:"backend,omitempty"`
	Version    string    `json:"version,omitempty"`
	Level      string    `json:"level,omitempty"`
	Subscribed []string  `json:"subscribed,omitempty"`
	Principal  principal `json:"principal,omitempty"`
	Deleted    bool      `json:"deleted,omitempty"`
}

// purposeOverride is the keyring's purpose for overrides: backends' session ids are
// in them.
const purposeOverride = "session override"

// saveTimeout bounds writing to the store.
const saveTimeout = 5 * time.Second

// life names the life that the backend's session has now. The caller holds the
// lock.
func (s *session) life() life {
	return life{process: s.srv.gate.look().process, renewal: s.renewals}
}

// touch notes a use.
func (s *session) touch(now time.Time) { s.used.Store(now.UnixNano()) }

// begin notes a request that runs, end that it ended.
func (s *session) begin(now time.Time) {
	s.touch(now)
	s.mu.Lock()
	s.busy++
	s.mu.Unlock()
}

func (s *session) end(now time.Time) {
	s.touch(now)
	s.mu.Lock()
	s.busy--
	s.mu.Unlock()
}

// idleSince returns when the session was last used; it is not idle while requests
// or streams are open.
func (s *session) idleSince() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	return time.Unix(0, s.used.Load()), s.busy == 0 && len(s.streams) == 0 && s.renewing == nil
}

// target is what a request to the backend needs of the session.
type target struct {
	backend  string
	version  string
	renewals uint64
	lost     bool
	ended    bool
}

func (s *session) target() target {
	s.mu.Lock()
	defer s.mu.Unlock()

	return target{s.backend, s.version, s.renewals, s.lost, s.ended}
}

// accepted notes that the backend's process took a request of the session with
// these headers. If it did what was asked, their credential is the session's from
// now on.
func (s *session) accepted(ctx context.Context, h http.Header, process uint64, granted bool) {
	s.mu.Lock()
	s.confirmed = process + 1

	if !granted || s.credentials != nil && sameCredentials(s.credentials, h) {
		s.mu.Unlock()
		return
	}

	p := principalOf(h)
	moved := s.principal.moves(p)

	if moved {
		s.principal = p
	}

	if moved || p == s.principal {
		s.credentials = ownHeader(h)
	}
	s.mu.Unlock()

	if moved {
		s.save(ctx)
	}
}

// owns reports whether a request with these headers comes from the session's
// principal, as far as that can be told without asking the backend.
func (s *session) owns(h http.Header) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.credentials != nil && sameCredentials(s.credentials, h) || s.principal == principalOf(h)
}

// stranger reports whether a request with these headers comes for certain from
// somebody else than the session's principal.
func (s *session) stranger(h http.Header) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	if s.credentials != nil && sameCredentials(s.credentials, h) {
		return false
	}

	return s.principal.conflicts(principalOf(h))
}

// note keeps what a successful request of the client set, to set it again on a
// re-created backend session.
func (s *session) note(ctx context.Context, m *message) {
	s.mu.Lock()

	switch m.method {
	case "logging/setLevel":
		s.level = m.level
	case "resources/subscribe":
		if !slices.Contains(s.subscribed, m.uri) && len(s.subscribed) < maxSubscriptions {
			s.subscribed = append(s.subscribed, m.uri)
		}
	case "resources/unsubscribe":
		s.subscribed = slices.DeleteFunc(s.subscribed, func(u string) bool { return u == m.uri })
	default:
		s.mu.Unlock()
		return
	}

	s.mu.Unlock()
	s.save(ctx)
	s.srv.p.peers.changed(ctx, s)
}

// save writes what changed into the store, and reports whether it could. A store
// that is away costs a successor a re-initialisation, so that is only logged.
func (s *session) save(ctx context.Context) bool {
	s.mu.Lock()

	if s.unstored {
		s.mu.Unlock()
		return true
	}

	backend := s.backend
	o := override{Backend: &backend, Version: s.version, Level: s.level, Subscribed: slices.Clone(s.subscribed), Principal: s.principal, Deleted: s.ended}
	s.mu.Unlock()

	// It must be written also when the client has left.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()

	value, err := json.Marshal(o)
	if err == nil {
		value, err = s.srv.p.keys.Seal(purposeOverride, value, []byte(s.key))
	}

	if err == nil {
		err = s.srv.p.blobs.PutBlob(ctx, bucketSessions, s.key, value, s.srv.p.config().SessionTTL)
	}

	if err != nil {
		s.srv.logger.Warn("storing a session's state failed, a restart may re-create it", "err", err)
	}

	return err == nil
}

// apply takes what the store says about the session and reports whether that is
// another backend session than the one that is known.
func (s *session) apply(o *override) (moved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()

	if o.Deleted {
		s.ended = true
	}

	if o.Backend != nil && *o.Backend != s.backend {
		s.backend, moved = *o.Backend, true
		s.lost = false
	}

	if o.Version != "" {
		s.version = o.Version
	}

	if o.Level != "" {
		s.level = o.Level
	}

	if o.Subscribed != nil {
		s.subscribed = o.Subscribed
	}

	if o.Principal != "" {
		s.principal = o.Principal
	}

	return moved
}

// close ends the session for good: its streams end and its id is refused, from the
// store or, when that is away, as long as the session stays in memory.
func (s *session) close(ctx context.Context) {
	s.mu.Lock()
	already := s.ended
	s.ended = true
	streams := slices.Clone(s.streams)

	if s.notices.timer != nil {
		s.notices.timer.Stop()
	}
	s.mu.Unlock()

	if already {
		return
	}

	for _, c := range streams {
		c.end()
	}

	if s.save(ctx) {
		s.srv.drop(s)
		s.srv.p.peers.changed(ctx, s)
	}
}
