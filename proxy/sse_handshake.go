package proxy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
)

// reinitialize makes the backend's new session one like the one before: with the
// client's own parameters, and with what the client had set on it.
func (l *sseLink) reinitialize(ctx context.Context, params []byte) error {
	ctx, cancel := context.WithTimeout(ctx, renewTimeout)
	defer cancel()

	body, err := l.ask(ctx, methodInitialize, params)
	if err != nil {
		return err
	}

	e, err := readEnvelope(body)
	if err != nil {
		return fmt.Errorf("%w: %w", errNotReady, err)
	}

	s, r := l.s, &e.messages[0]

	if r.isError {
		return fmt.Errorf("%w: the backend refused to initialize it (code %d)", errSessionEnded, r.errorCode)
	}

	if had, v := s.sess.target().version, stringMember(r.result.of(body), memberProtocol); v != had {
		return fmt.Errorf("%w: the backend's protocol version changed from %q to %q", errSessionEnded, had, clip(v))
	}

	if l.tellsInitialized() {
		if err := l.post(ctx, []byte(`{"jsonrpc":"2.0","method":"`+methodInitialized+`"}`)); err != nil {
			return err
		}
	}

	l.restore(ctx)
	s.srv.metrics.reinit(reinitOK)

	return nil
}

// tellsInitialized reports whether the client has said that it is initialised, so
// that it must be said for it.
func (l *sseLink) tellsInitialized() bool {
	l.s.mu.Lock()
	said := l.s.said
	l.s.mu.Unlock()

	l.mu.Lock()
	defer l.mu.Unlock()

	l.told = said

	return said
}

func (l *sseLink) wasToldInitialized() bool {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.told
}

// restore sets again what the client had set on the session.
func (l *sseLink) restore(ctx context.Context) {
	sess := l.s.sess

	sess.mu.Lock()
	level, subscribed := sess.level, slices.Clone(sess.subscribed)
	sess.mu.Unlock()

	set := func(method, key, value string) {
		params, err := json.Marshal(map[string]string{key: value})
		if err == nil {
			_, err = l.ask(ctx, method, params)
		}

		if err != nil && ctx.Err() == nil {
			sess.srv.logger.Warn("restoring a session's settings failed", "method", method, "err", err)
		}
	}

	if level != "" {
		set("logging/setLevel", "level", level)
	}

	for _, uri := range subscribed {
		set("resources/subscribe", "uri", uri)
	}
}

// notReinitialized decides after a session that couldn't be made like the one
// before.
func (s *sseSession) notReinitialized(err error) (over bool) {
	var denied *deniedError

	switch {
	case errors.Is(err, errSessionEnded):
		s.srv.metrics.reinit(reinitRefused)
		s.srv.logger.Warn("a session could not be carried across a swap, its client must begin anew", "err", err)

		if s.sess.conv != "" {
			s.srv.p.conversations.SessionLost(s.sess.conv, s.srv.name)
		}
	case errors.As(err, &denied):
		s.srv.metrics.reinit(reinitDenied)
	default:
		s.srv.metrics.reinit(reinitNotReady)
		s.srv.logger.Debug("re-creating a session waits for the backend", "err", err)
		s.srv.suspect("not_ready")

		return false
	}

	s.refuse(func(w http.ResponseWriter) { refuseSession(w, nil) })

	return true
}

// ask sends a request of the sidecar's own and returns the response.
func (l *sseLink) ask(ctx context.Context, method string, params []byte) ([]byte, error) {
	response := make(chan []byte, 1)

	l.mu.Lock()
	l.asked++
	name := strconv.Itoa(l.asked)
	key := idKey([]byte(`"mcp-sidecar-` + name + `"`))
	l.own[key] = response
	l.mu.Unlock()

	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()

		delete(l.own, key)
	}()

	if err := l.post(ctx, ownRequest(name, method, params)); err != nil {
		return nil, err
	}

	select {
	case body := <-response:
		return body, nil
	case <-ctx.Done():
		return nil, errNotReady
	}
}

// post sends a message of the sidecar's own, in the client's name.
func (l *sseLink) post(ctx context.Context, body []byte) error {
	s := l.s

	resp, _, err := s.srv.send(ctx, outgoing{
		method: http.MethodPost, header: ownHeader(s.sess.refreshed(s.forward)), url: l.messages(),
		version: versionHeader(s.sess.target().version), accept: acceptBoth, json: true, body: body,
	})
	if err != nil {
		return fmt.Errorf("%w: %w", errNotReady, err)
	}

	defer func() { _ = resp.Body.Close() }()

	switch {
	case resp.StatusCode < http.StatusMultipleChoices:
		return nil
	case resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden:
		return &deniedError{status: resp.StatusCode}
	default:
		return fmt.Errorf("%w: a message was answered with HTTP %d", errNotReady, resp.StatusCode)
	}
}
