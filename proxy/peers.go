package proxy

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// Peers are the other replicas that serve the same sessions.
type Peers interface {
	// Tell sends all of them a message, which may get lost. They hand it to
	// [Proxy.Hear].
	Tell(ctx context.Context, topic string, body []byte) error
}

// TopicSessions is the topic of the messages between proxies.
const TopicSessions = "sessions"

// purposePeers is the keyring's purpose for these messages: what clients say is in
// them, and their credentials.
const purposePeers = "message to another replica"

// Times of relaying a message.
const (
	// relayPatience is how long to wait for the replica that a message is for. It may
	// be gone.
	relayPatience = time.Second
	// relayTimeout bounds what that replica does with it.
	relayTimeout = 10 * time.Second
)

// peerKind says what a message to another replica is about.
type peerKind string

const (
	// peerAnswer is a client's answer to a request of the backend: whoever passed that
	// request on takes it.
	peerAnswer peerKind = "answer"
	// peerInitialized is a client's word that it is initialised, for whoever answered
	// its initialize.
	peerInitialized peerKind = "initialized"
	// peerCancelled is a client's wish to end a request, for whoever has it.
	peerCancelled peerKind = "cancelled"
	// peerChanged says that the store has something new about the session.
	peerChanged peerKind = "changed"
	// peerTaken says that a message arrived where it belongs.
	peerTaken peerKind = "taken"
)

// peerMessage is what one replica tells the others about a session.
type peerMessage struct {
	Kind   peerKind    `json:"kind"`
	Server string      `json:"server,omitempty"`
	Key    string      `json:"key,omitempty"` // of the session
	Token  string      `json:"token,omitempty"`
	Header http.Header `json:"header,omitempty"`
	Body   []byte      `json:"body,omitempty"`
}

// peers is a proxy's connection to the others. A nil one is alone.
type peers struct {
	p    *Proxy
	send Peers

	mu      sync.Mutex
	waiting map[string]chan struct{} // for peerTaken, by token
}

func newPeers(p *Proxy, send Peers) *peers {
	if send == nil {
		return nil
	}

	return &peers{p: p, send: send, waiting: make(map[string]chan struct{})}
}

func (ps *peers) tell(ctx context.Context, m *peerMessage) bool {
	body, err := json.Marshal(m)
	if err == nil {
		body, err = ps.p.keys.Seal(purposePeers, body, nil)
	}

	if err == nil {
		err = ps.send.Tell(ctx, TopicSessions, body)
	}

	if err != nil {
		ps.p.logger.Debug("telling the other replicas failed", "kind", string(m.Kind), "err", err)
	}

	return err == nil
}

// ask tells the others and reports whether one of them took the message.
func (ps *peers) ask(ctx context.Context, m *peerMessage) bool {
	m.Token = rand.Text()
	taken := make(chan struct{}, 1)

	ps.mu.Lock()
	ps.waiting[m.Token] = taken
	ps.mu.Unlock()

	defer func() {
		ps.mu.Lock()
		delete(ps.waiting, m.Token)
		ps.mu.Unlock()
	}()

	ctx, cancel := context.WithTimeout(ctx, relayPatience)
	defer cancel()

	if !ps.tell(ctx, m) {
		return false
	}

	select {
	case <-taken:
		return true
	case <-ctx.Done():
		return false
	}
}

// changed tells the others that the session's override is another one.
func (ps *peers) changed(ctx context.Context, s *session) {
	if ps == nil || s.unstored {
		return
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()

	ps.tell(ctx, &peerMessage{Kind: peerChanged, Server: s.srv.name, Key: s.key})
}

// relay gives the other replicas what is for one of them. It returns true when the
// messages needn't reach the backend here.
func (x *exchange) relay(ctx context.Context) bool {
	if x.p.peers == nil || x.sess == nil || x.sess.unstored {
		return false
	}

	m := &x.env.messages[0]
	out := &peerMessage{Server: x.srv.name, Key: x.sess.key, Header: x.forward, Body: x.body}

	switch {
	case x.answersOthers():
		out.Kind = peerAnswer
		if !x.p.peers.ask(ctx, out) {
			return false // as if the request had come from the backend here
		}

		x.accept()

		return true
	case x.env.batch:
	case m.method == methodInitialized && x.sess.isInherited():
		out.Kind = peerInitialized
		x.p.peers.ask(ctx, out)
	case m.method == methodCancelled:
		out.Kind = peerCancelled
		x.p.peers.tell(ctx, out)
	}

	return false
}

// answersOthers reports whether the messages are nothing but answers to requests
// that weren't passed on here.
func (x *exchange) answersOthers() bool {
	for i := range x.env.messages {
		if m := &x.env.messages[i]; m.kind != kindResponse || x.sess.hasAsked(m.id) {
			return false
		}
	}

	return true
}

func (s *session) hasAsked(id []byte) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return len(s.fence.asked[idKey(id)]) > 0
}

func (s *session) isInherited() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	return s.inherited
}

// Hear takes a message that another replica told. It doesn't block. What isn't
// meant for proxies, or wasn't sealed with the same keys, is ignored.
func (p *Proxy) Hear(ctx context.Context, m conversation.Message) {
	if p.peers == nil || m.Topic != TopicSessions {
		return
	}

	body, err := p.keys.Open(purposePeers, m.Body, nil)

	var in peerMessage
	if err == nil {
		err = json.Unmarshal(body, &in)
	}

	if err != nil {
		p.logger.Debug("a message of another replica can't be read", "err", err)
		return
	}

	if in.Kind == peerTaken {
		p.peers.taken(in.Token)
		return
	}

	srv := p.current.Load().servers[in.Server]
	if srv == nil {
		return
	}

	if sess := srv.sessions.byKey(in.Key); sess != nil {
		p.tasks.start(ctx, relayTimeout, func(ctx context.Context) { sess.hear(ctx, &in) })
	}
}

func (ps *peers) taken(token string) {
	ps.mu.Lock()
	defer ps.mu.Unlock()

	if c := ps.waiting[token]; c != nil {
		select {
		case c <- struct{}{}:
		default:
		}
	}
}

// byKey returns the session that the store knows by a key, if it is in memory.
func (t *sessions) byKey(key string) *session {
	t.mu.RLock()
	defer t.mu.RUnlock()

	for _, s := range t.byID {
		if s.key == key {
			return s
		}
	}

	return nil
}

// hear does what a message of another replica says about the session.
func (s *session) hear(ctx context.Context, in *peerMessage) {
	switch in.Kind {
	case peerAnswer:
		s.hearAnswer(ctx, in)
	case peerInitialized:
		s.mu.Lock()
		mine := !s.initialized
		s.initialized = true
		s.mu.Unlock()

		if mine {
			s.pass(ctx, in)
			s.srv.p.peers.tell(ctx, &peerMessage{Kind: peerTaken, Token: in.Token})
		}
	case peerCancelled:
		if e, err := readEnvelope(in.Body); err == nil && !s.cancelHeld(e.messages[0].cancelledID) {
			s.pass(ctx, in)
		}
	case peerChanged:
		s.hearChange(ctx)
	case peerTaken:
	}
}

// hearAnswer takes a client's answer to a request that was passed on here.
func (s *session) hearAnswer(ctx context.Context, in *peerMessage) {
	e, err := readEnvelope(in.Body)
	if err != nil {
		return
	}

	for i := range e.messages {
		if !s.hasAsked(e.messages[i].id) {
			return
		}
	}

	late := true

	for i := range e.messages {
		if s.answerTo(&e.messages[i]) == s.currentLife() {
			late = false
		}
	}

	s.srv.p.peers.tell(ctx, &peerMessage{Kind: peerTaken, Token: in.Token})

	if !late {
		s.pass(ctx, in)
	}
}

// pass brings a client's message that came to another replica to the backend.
func (s *session) pass(ctx context.Context, in *peerMessage) {
	t := s.target()
	if t.lost || t.ended {
		return
	}

	resp, _, err := s.srv.send(ctx, outgoing{
		method: http.MethodPost, header: in.Header, session: t.backend, version: versionHeader(t.version),
		accept: acceptBoth, json: true, body: in.Body,
	})
	if err != nil {
		s.srv.logger.Debug("a message that came to another replica was not delivered", "err", err)
		return
	}

	discard(resp)
}

// hearChange takes over what another replica noted about the session: its end, or
// what its client set. Each replica has a backend session of its own.
func (s *session) hearChange(ctx context.Context) {
	o, err := s.srv.override(ctx, s.key)
	if err != nil {
		s.srv.logger.Debug("reading a session's state failed", "err", err)
		return
	}

	if o.Deleted {
		if err := s.srv.endUpstream(ctx, s); err != nil {
			s.srv.logger.Debug("ending a session on the backend failed", "err", err)
		}

		s.endHere()

		return
	}

	o.Backend = nil

	s.mu.Lock()
	own := s.credentials
	differs := o.Level != s.level || !sameSet(o.Subscribed, s.subscribed)
	s.mu.Unlock()

	s.apply(&o)

	if t := s.target(); differs && own != nil && !t.lost && !t.ended {
		s.restore(ctx, own, t)
	}
}

func sameSet(a, b []string) bool {
	if len(a) != len(b) {
		return false
	}

	has := make(map[string]bool, len(a))
	for _, v := range a {
		has[v] = true
	}

	for _, v := range b {
		if !has[v] {
			return false
		}
	}

	return true
}

// endHere ends a session that another replica has ended in the store.
func (s *session) endHere() {
	s.mu.Lock()
	s.ended = true
	streams := append([]*clientStream(nil), s.streams...)

	if s.notices.timer != nil {
		s.notices.timer.Stop()
	}
	s.mu.Unlock()

	for _, c := range streams {
		c.end()
	}

	s.srv.drop(s)
}
