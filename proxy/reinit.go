package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// renewTimeout bounds re-creating one session.
const renewTimeout = 20 * time.Second

var (
	// errSessionEnded: the session can't be had any more, its client must begin
	// anew.
	errSessionEnded = errors.New("the session has ended")
	// errNotReady: whoever answers isn't an MCP server yet.
	errNotReady = errors.New("the backend is not ready")
)

// deniedError is the backend's answer to credentials that it doesn't take.
type deniedError struct {
	status int
	header http.Header
	body   []byte
}

func (e *deniedError) Error() string { return "the backend refused the credentials" }

// renewing is one attempt to re-create a session, for all who wait for it.
type renewing struct {
	done chan struct{}
	err  error
}

// renew re-creates the backend's session with the client's own parameters, unless
// that was done since renewals was seen. Requests that need it at the same time
// share one attempt, which goes on when one of them is given up. own holds the
// credentials.
//
// The error is errSessionEnded, errNotReady (the gate is closed then), a
// *deniedError, or what ended ctx.
func (s *session) renew(ctx context.Context, renewals uint64, own http.Header) error {
	s.mu.Lock()

	switch {
	case s.ended:
		s.mu.Unlock()
		return errSessionEnded
	case s.renewals != renewals && !s.lost:
		s.mu.Unlock()
		return nil
	}

	c := s.renewing
	if c == nil {
		c = &renewing{done: make(chan struct{})}

		if !s.srv.p.tasks.start(ctx, renewTimeout, func(ctx context.Context) { s.lead(ctx, c, own) }) {
			s.mu.Unlock()
			return errNotReady
		}

		s.renewing = c
	}
	s.mu.Unlock()

	select {
	case <-c.done:
		return c.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lead does one attempt.
func (s *session) lead(ctx context.Context, c *renewing, own http.Header) {
	err := s.recreate(ctx, own)

	var denied *deniedError

	result := reinitOK

	switch {
	case err == nil:
	case errors.Is(err, errSessionEnded):
		result = reinitRefused

		s.close(ctx)

		if s.conv != "" {
			s.srv.p.conversations.SessionLost(s.conv, s.srv.name)
		}

		s.srv.logger.Warn("a session could not be carried across a swap, its client must begin anew", "err", err)
	case errors.As(err, &denied):
		result = reinitDenied
	default:
		result = reinitNotReady

		s.srv.logger.Debug("re-creating a session waits for the backend", "err", err)
		s.srv.suspect("not_ready")

		err = errNotReady
	}

	s.srv.metrics.reinit(result)

	s.mu.Lock()
	s.renewing = nil
	c.err = err
	s.mu.Unlock()

	close(c.done)
}

// recreate makes a backend session like the one that was lost.
func (s *session) recreate(ctx context.Context, own http.Header) error {
	// Another replica may have been first.
	if o, err := s.srv.override(ctx, s.key); err == nil {
		if s.apply(&o) {
			s.renewed(s.target())
			return nil
		}

		if s.target().ended {
			return fmt.Errorf("%w: another replica ended it", errSessionEnded)
		}
	}

	params, err := s.claims.initializeParams()
	if err != nil {
		return fmt.Errorf("%w: %w", errSessionEnded, err)
	}

	t, err := s.handshake(ctx, own, params)
	if err != nil {
		return err
	}

	s.restore(ctx, own, t)
	s.renewed(t)
	s.save(ctx)

	return nil
}

// handshake initialises a new backend session.
func (s *session) handshake(ctx context.Context, own http.Header, params []byte) (target, error) {
	resp, _, err := s.srv.send(ctx, outgoing{
		method: http.MethodPost, header: own, accept: acceptBoth, json: true, body: ownRequest("init", methodInitialize, params),
	})
	if err != nil {
		return target{}, fmt.Errorf("%w: %w", errNotReady, err)
	}

	defer func() { _ = resp.Body.Close() }()

	a := newAnswer(resp)

	if a.kind == typeEventStream && a.StatusCode == http.StatusOK {
		a.head, err = firstResponse(a)
		a.whole = err == nil
	} else {
		err = a.read(maxWhole)
	}

	if err != nil {
		return target{}, fmt.Errorf("%w: %w", errNotReady, err)
	}

	rpc, isRPC := a.rpc()

	switch {
	case a.StatusCode == http.StatusUnauthorized || a.StatusCode == http.StatusForbidden:
		return target{}, &deniedError{a.StatusCode, a.Header, a.head}
	case a.StatusCode == http.StatusNotFound || a.StatusCode >= http.StatusInternalServerError || !isRPC:
		return target{}, fmt.Errorf("%w: initialize was answered with HTTP %d", errNotReady, a.StatusCode)
	case rpc.isError:
		return target{}, fmt.Errorf("%w: the backend refused to initialize it (code %d)", errSessionEnded, rpc.errorCode)
	}

	v := stringMember(rpc.result.of(a.head), memberProtocol)
	if had := s.target().version; had != "" && v != had {
		return target{}, fmt.Errorf("%w: the backend's protocol version changed from %q to %q", errSessionEnded, had, clip(v))
	}

	backend, ok := backendSession(a.Header)
	if !ok {
		return target{}, fmt.Errorf("%w: it gave an unusable session id", errNotReady)
	}

	t := target{backend: backend, version: v}

	status, err := s.tell(ctx, own, t, []byte(`{"jsonrpc":"2.0","method":"`+methodInitialized+`"}`))
	if err != nil || status >= http.StatusInternalServerError || status == http.StatusNotFound {
		return target{}, fmt.Errorf("%w: initialized was not accepted (HTTP %d): %w", errNotReady, status, err)
	}

	return t, nil
}

// restore sets again what the client had set on the session. A backend that
// doesn't take it any more would not have told the client either.
func (s *session) restore(ctx context.Context, own http.Header, t target) {
	s.mu.Lock()
	level, subscribed := s.level, slices.Clone(s.subscribed)
	s.mu.Unlock()

	set := func(name, method, key, value string) {
		params, err := json.Marshal(map[string]string{key: value})
		if err == nil {
			_, err = s.tell(ctx, own, t, ownRequest(name, method, params))
		}

		if err != nil {
			s.srv.logger.Warn("restoring a session's settings failed", "method", method, "err", err)
		}
	}

	if level != "" {
		set("level", "logging/setLevel", "level", level)
	}

	for _, uri := range subscribed {
		set("subscribe", "resources/subscribe", "uri", uri)
	}
}

// tell sends a message of the sidecar's own on a backend session and reads the
// answer away.
func (s *session) tell(ctx context.Context, own http.Header, t target, body []byte) (status int, err error) {
	resp, _, err := s.srv.send(ctx, outgoing{
		method: http.MethodPost, header: own, session: t.backend, version: versionHeader(t.version),
		accept: acceptBoth, json: true, body: body,
	})
	if err != nil {
		return 0, err
	}

	if a := newAnswer(resp); a.kind == typeEventStream {
		_, err = firstResponse(a)
		_ = resp.Body.Close()
	} else {
		discard(resp)
	}

	return resp.StatusCode, err
}

// renewed puts a new backend session in place of the lost one.
func (s *session) renewed(t target) {
	s.mu.Lock()
	s.backend, s.version, s.lost = t.backend, t.version, false
	s.renewals++
	s.events.forget()
	rebind := s.rebind
	s.mu.Unlock()

	if rebind != nil {
		rebind() // the stream of the lost session leads nowhere
	}
}

// memberProtocol names the protocol revision in parameters and result of
// initialize.
const memberProtocol = "protocolVersion"

// stringMember returns a string member of a raw JSON object, "" without one.
func stringMember(object []byte, name string) string {
	if len(object) == 0 {
		return ""
	}

	s := scanner{b: object}

	at, ok := s.find(name)
	if !ok {
		return ""
	}

	v, err := text(at.of(object))
	if err != nil {
		return ""
	}

	return v
}

// clip shortens foreign text for a message.
func clip(s string) string { return s[:min(len(s), 64)] }
