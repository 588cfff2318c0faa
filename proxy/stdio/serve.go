package stdio

import (
	"errors"
	"fmt"
	"io"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
)

// RoundTrip answers a request to the endpoint; its URL doesn't matter. The error
// wraps [ErrUnavailable] if the request had no effect since there is no process,
// [io.ErrUnexpectedEOF] if the process ended while it had it, or is that of the
// request's context.
func (b *Bridge) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.Body != nil {
		defer func() { _ = req.Body.Close() }()
	}

	id := req.Header.Get(mcp.HeaderSessionID)

	switch req.Method {
	case http.MethodPost:
		return b.post(req, id)
	case http.MethodGet, http.MethodDelete:
		s := b.session(id)

		switch {
		case id == "": // without a session there is neither a stream nor something to end
			return notAllowed(req, "POST"), nil
		case s == nil:
			return unknownSession(req, nil), nil
		case req.Method == http.MethodDelete:
			b.remove(s)
			return empty(req, http.StatusOK), nil
		default:
			return b.get(req, s), nil
		}
	default:
		return notAllowed(req, "GET, POST, DELETE"), nil
	}
}

func notAllowed(req *http.Request, allow string) *http.Response {
	resp := empty(req, http.StatusMethodNotAllowed)
	resp.Header.Set("Allow", allow)

	return resp
}

// bodyLimit is how much may wait in a stream for its reader.
func (b *Bridge) bodyLimit() int { return 2 * b.cfg.MaxMessage }

// get opens the stream of a session.
func (b *Bridge) get(req *http.Request, s *session) *http.Response {
	stream := newStream(b.bodyLimit(), nil)
	stream.onClose = func() { s.left(stream) }

	if !s.open(stream) {
		return unknownSession(req, nil)
	}

	return eventStream(req, stream)
}

// post takes messages of a client.
func (b *Bridge) post(req *http.Request, id string) (*http.Response, error) {
	body, err := readBody(req, b.cfg.MaxMessage)

	switch {
	case errors.Is(err, errTooLong):
		return refusal(req, http.StatusRequestEntityTooLarge, nil, codeInvalid, "the message is larger than the stdio server is given"), nil
	case err != nil:
		return nil, fmt.Errorf("reading the request: %w", err)
	}

	messages, batch, err := readMessages(body)
	if err != nil {
		return refusal(req, http.StatusBadRequest, nil, codeParse, err.Error()), nil
	}

	first := &messages[0]

	switch {
	case first.modern():
		return b.stateless(req, messages, batch)
	case first.kind == kindRequest && first.method == methodInitialize && !batch:
		return b.initialize(req, first)
	case id == "":
		return refusal(req, http.StatusBadRequest, first.requestID(), codeInvalid, "the request needs the "+mcp.HeaderSessionID+" header"), nil
	}

	s := b.session(id)
	if s == nil {
		return unknownSession(req, first.requestID()), nil
	}

	resp, err := b.forward(req, s.proc, s, messages, batch)
	if errors.Is(err, errGone) {
		return unknownSession(req, first.requestID()), nil
	}

	return resp, err
}

func readBody(req *http.Request, limit int) ([]byte, error) {
	if req.Body == nil {
		return nil, io.ErrUnexpectedEOF
	}

	body, err := io.ReadAll(io.LimitReader(req.Body, int64(limit)+1))
	if err == nil && len(body) > limit {
		err = errTooLong
	}

	return body, err //nolint:wrapcheck // the caller does
}

// requestID returns the raw id of a request, nil for other messages.
func (m *message) requestID() []byte {
	if m.kind != kindRequest {
		return nil
	}

	return m.id.of(m.raw)
}

// stateless serves messages that stand for themselves.
func (b *Bridge) stateless(req *http.Request, messages []message, batch bool) (*http.Response, error) {
	m := &messages[0]

	err := mcp.ValidateStandardHeaders(req.Header.Get, m.version(), mcp.MCPMethod(m.method), m.params.of(m.raw))
	if v := req.Header.Get(mcp.HeaderProtocolVersion); err == nil && v != m.version() {
		err = mcp.HeaderMismatchError{Header: mcp.HeaderProtocolVersion, Reason: "header value does not match body value"}
	}

	if err != nil {
		return refusal(req, http.StatusBadRequest, m.requestID(), mcp.HEADER_MISMATCH, err.Error()), nil
	}

	for {
		p, err := b.shared(req.Context())
		if err != nil {
			return b.notStarted(req, m, err)
		}

		resp, err := b.forward(req, p, nil, messages, batch)
		if !errors.Is(err, errGone) {
			return resp, err
		}

		b.retire(p) // it is as good as gone
	}
}

// forward sends messages to a process and waits for what it answers. The error is
// errGone when nothing was sent.
func (b *Bridge) forward(req *http.Request, p *process, s *session, messages []message, batch bool) (*http.Response, error) {
	requests := 0

	for i := range messages {
		if messages[i].kind == kindRequest {
			requests++
		}
	}

	var x *exchange

	if requests > 0 {
		x = newExchange(req.Header, requests, s == nil, b.bodyLimit())
		if x.modern {
			x.onLeave = func() { p.abandon(x) }
		}
	}

	err := p.send(req.Context(), s, x, messages)

	switch {
	case err != nil:
		return nil, err
	case x == nil:
		return empty(req, http.StatusAccepted), nil
	case s != nil:
		s.flush(x)
	}

	return x.response(req, batch)
}

// notStarted answers a request for which there is no process.
func (b *Bridge) notStarted(req *http.Request, m *message, err error) (*http.Response, error) {
	if !errors.Is(err, errTooMany) {
		return nil, err
	}

	b.busy.Do(func() {
		b.log.Warn("a session was refused, allow more processes of the stdio server or share one", "limit", b.cfg.MaxProcesses)
	})

	return refusal(req, http.StatusTooManyRequests, m.requestID(), codeInternal, "the stdio server has as many sessions as are allowed"), nil
}
