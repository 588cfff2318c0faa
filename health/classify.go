package health

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"syscall"
)

// rpcError is a JSON-RPC error of the backend.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

// Error quotes what the backend said.
func (e *rpcError) Error() string {
	return fmt.Sprintf("the server answered with JSON-RPC error %d: %s", e.Code, strconv.Quote(shorten(e.Message)))
}

// The JSON-RPC errors that are about the request itself, and so never about a session.
const (
	codeInvalidRequest = -32600
	codeMethodNotFound = -32601
	codeInvalidParams  = -32602
)

// classify makes an [*Error] of what became of a request. err is what the client said, and rpc the JSON-RPC error, if any.
// It returns nil if the answer is good. The URL, which may hold a secret, isn't in it.
func classify(ctx context.Context, probe string, x *exchange, err error, rpc *rpcError) *Error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	o := x.result()
	switch {
	case errors.Is(err, errCredentials):
		return failure(probe, ReasonCredentials, "%w", err)
	case o.large:
		return failure(probe, ReasonTooLarge, "%w", errTooLarge)
	case err != nil && errors.Is(ctx.Err(), context.Canceled):
		return failure(probe, ReasonCanceled, "%w", context.Cause(ctx))
	case err != nil && isTimeout(ctx, err):
		return failure(probe, ReasonTimeout, "no answer in time")
	case !o.answered && err != nil:
		return unanswered(probe, o.connected, err)
	case o.status < http.StatusMultipleChoices:
		return answered(probe, &o, x.inSession, err, rpc)
	default:
		e := refusedByHTTP(probe, &o, x.inSession)
		e.status = o.status
		return e
	}
}

func isTimeout(ctx context.Context, err error) bool {
	ne, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(ctx.Err(), context.DeadlineExceeded) || ok && ne.Timeout()
}

// unanswered classifies requests that got no answer.
func unanswered(probe string, connected bool, err error) *Error {
	switch {
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, fs.ErrNotExist):
		return failure(probe, ReasonRefused, "nothing listens there: %w", err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		errors.Is(err, net.ErrClosed), strings.Contains(err.Error(), "server closed idle connection"):
		return failure(probe, ReasonReset, "the connection ended before an answer: %w", err)
	case connected:
		// The error quotes what came instead, which may hold a secret of the request.
		text, _, _ := strings.Cut(err.Error(), ` "`)
		return failure(probe, ReasonInvalid, "the answer is not HTTP: %s", text)
	default:
		return failure(probe, ReasonUnreachable, "no connection: %w", err)
	}
}

// answered classifies answers with a good status.
func answered(probe string, x *outcome, withSession bool, err error, rpc *rpcError) *Error {
	if rpc == nil && err != nil {
		rpc = errorIn(x.body) // without an id, for instance
	}
	switch {
	case rpc != nil && withSession && namesSession([]byte(rpc.Message)):
		return failure(probe, ReasonSessionLost, "%w", x.quote(rpc))
	case rpc != nil:
		return failure(probe, ReasonRPCError, "%w", x.quote(rpc))
	case err == nil:
		return nil
	case x.broken:
		return failure(probe, ReasonReset, "the answer ended too early")
	case x.mediaType != "application/json" && x.mediaType != "text/event-stream":
		return failure(probe, ReasonNotReady, "the answer is %s, not MCP: check the path", strconv.Quote(shorten(x.mediaType)))
	default:
		return failure(probe, ReasonInvalid, "the answer can't be read as JSON-RPC")
	}
}

// refusedByHTTP classifies answers with a status that says no. Servers spell "I don't know this session" in several ways:
// 404 is the specified one, others put the word into the body of another status.
func refusedByHTTP(probe string, x *outcome, withSession bool) *Error {
	rpc := errorIn(x.body)
	what := fmt.Sprintf("the server answered %d %s", x.status, http.StatusText(x.status))
	switch {
	case withSession && x.status == http.StatusNotFound && (rpc == nil || !aboutRequest(rpc)):
		return failure(probe, ReasonSessionLost, "%s: it doesn't know the session", what)
	case withSession && namesSession(x.body) && (x.status == http.StatusBadRequest || x.status == http.StatusServiceUnavailable ||
		x.status == http.StatusUnauthorized && !x.challenge):
		return failure(probe, ReasonSessionLost, "%s: it doesn't know the session", what)
	case x.status == http.StatusUnauthorized, x.status == http.StatusForbidden:
		return failure(probe, ReasonUnauthorized, "%s: it wants credentials", what)
	case rpc != nil && x.status < http.StatusInternalServerError:
		return failure(probe, ReasonRPCError, "%w (status %d)", x.quote(rpc), x.status)
	case x.status < http.StatusBadRequest:
		return failure(probe, ReasonNotReady, "%s: it redirects elsewhere, use the final URL", what)
	default:
		return failure(probe, ReasonNotReady, "%s", what)
	}
}

// aboutRequest reports whether a JSON-RPC error is about the request, not about its session.
func aboutRequest(e *rpcError) bool {
	switch e.Code {
	case codeInvalidRequest, codeMethodNotFound, codeInvalidParams:
		return !namesSession([]byte(e.Message))
	default:
		return false
	}
}

func namesSession(text []byte) bool { return bytes.Contains(bytes.ToLower(text), []byte("session")) }

// errorIn returns the JSON-RPC error that a body holds, or nil.
func errorIn(body []byte) *rpcError {
	var m struct {
		JSONRPC string    `json:"jsonrpc"`
		Error   *rpcError `json:"error"`
	}
	if err := json.Unmarshal(body, &m); err == nil && m.JSONRPC == "2.0" {
		return m.Error
	}
	return nil
}
