package proxy

import (
	"context"
	"net/http"
)

// loss says whether an answer means that the backend doesn't know the session.
type loss int

const (
	lossNone     loss = iota
	lossPossible      // a known spelling of it: to be confirmed
	lossCertain
)

// lossOf reads an answer to a request of a session that the sidecar holds. 404 is
// what the specification asks for (MCP 2025-11-25 "Session Management"); the other
// spellings are what servers in use say instead, always with a word about the
// session. A JSON-RPC error about the request itself is none.
func lossOf(a *answer, rpc *message, isRPC bool) loss {
	if !a.plain {
		return lossNone
	}

	switch a.StatusCode {
	case http.StatusNotFound:
		if isRPC && rpc.isError && rpc.errorCode != codeNoSession && !namesSession(a.head) {
			return lossNone
		}

		return lossCertain
	case http.StatusBadRequest, http.StatusServiceUnavailable:
	case http.StatusUnauthorized:
		if a.Header.Get("WWW-Authenticate") != "" {
			return lossNone
		}
	case http.StatusOK:
		if !isRPC || !rpc.isError {
			return lossNone
		}
	default:
		return lossNone
	}

	if a.whole && len(a.head) <= maxPeek && namesSession(a.head) {
		return lossPossible
	}

	return lossNone
}

// confirmLoss asks with a ping whether the backend really doesn't know the
// session: the error may have been about something else that is called a session.
// The ping must fail in the same way.
func (s *session) confirmLoss(ctx context.Context, first *answer, t target, own http.Header) bool {
	if s.target().renewals != t.renewals {
		return true // somebody else has found out and mended it
	}

	a, l, err := s.ping(ctx, t, own)

	return err == nil && (l == lossCertain || l == lossPossible && a.StatusCode == first.StatusCode)
}

// ping sends a ping on the backend's session and reads the answer.
func (s *session) ping(ctx context.Context, t target, own http.Header) (a *answer, l loss, err error) {
	resp, _, err := s.srv.send(ctx, outgoing{
		method: http.MethodPost, header: own, session: t.backend, version: versionHeader(t.version),
		accept: acceptBoth, json: true, body: ownRequest("ping", methodPing, nil),
	})
	if err != nil {
		return nil, lossNone, err
	}

	defer func() { _ = resp.Body.Close() }()

	a = newAnswer(resp)

	if a.kind == typeEventStream && a.StatusCode == http.StatusOK {
		a.head, err = firstResponse(a)
		a.whole = err == nil
	} else {
		err = a.read(maxPeek)
	}

	if err != nil {
		return nil, lossNone, err
	}

	rpc, isRPC := a.rpc()

	return a, lossOf(a, rpc, isRPC), nil
}

const acceptBoth = typeJSON + ", " + typeEventStream

// ownRequest builds a request of the sidecar's own. Its id can't be mistaken for a
// client's on the same session, as no answer to it ever reaches the client.
func ownRequest(name, method string, params []byte) []byte {
	b := []byte(`{"jsonrpc":"2.0","id":"mcp-sidecar-` + name + `","method":"` + method + `"`)
	if params != nil {
		b = append(append(b, `,"params":`...), params...)
	}

	return append(b, '}')
}

// firstResponse reads an event stream up to the first JSON-RPC response.
func firstResponse(a *answer) ([]byte, error) {
	events := newEventReader(a.Body, maxWhole)

	for {
		ev, err := events.Next()
		if err != nil {
			return nil, err
		}

		if e, err := readEnvelope(ev.data); len(ev.data) > 0 && err == nil && !e.batch && e.messages[0].kind == kindResponse {
			return ev.data, nil
		}
	}
}
