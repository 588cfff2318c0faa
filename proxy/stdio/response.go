package stdio

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strconv"

	"github.com/mark3labs/mcp-go/mcp"
)

const (
	typeJSON   = "application/json"
	typeEvents = "text/event-stream"
)

// JSON-RPC error codes of the bridge's own answers.
const (
	codeParse     = -32700
	codeInvalid   = -32600
	codeNoMethod  = -32601
	codeInternal  = -32603
	codeNoSession = -32001 // some clients key on it
)

func response(req *http.Request, status int, body io.ReadCloser, length int64) *http.Response {
	return &http.Response{
		Status: strconv.Itoa(status) + " " + http.StatusText(status), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: body, ContentLength: length, Request: req,
	}
}

func empty(req *http.Request, status int) *http.Response {
	return response(req, status, http.NoBody, 0)
}

func jsonBody(req *http.Request, status int, body []byte) *http.Response {
	resp := response(req, status, io.NopCloser(bytes.NewReader(body)), int64(len(body)))
	resp.Header.Set("Content-Type", typeJSON)

	return resp
}

// eventStream returns a response that is read from s until s ends or the request's
// context does.
func eventStream(req *http.Request, s *stream) *http.Response {
	ctx := req.Context()
	stop := context.AfterFunc(ctx, func() { s.end(ctx.Err()) })

	resp := response(req, http.StatusOK, &watchedBody{s, stop}, -1)
	resp.Header.Set("Content-Type", typeEvents)
	resp.Header.Set("Cache-Control", "no-cache")

	return resp
}

// watchedBody is a stream that ends with a context.
type watchedBody struct {
	*stream

	stop func() bool
}

// Close implements [io.Closer].
func (b *watchedBody) Close() error {
	b.stop()
	return b.stream.Close()
}

func refusal(req *http.Request, status int, id []byte, code int, text string) *http.Response {
	return jsonBody(req, status, errorMessage(id, code, text))
}

// unknownSession is what MCP 2025-11-25 "Session Management" asks for. It doesn't
// tell one that ended from one that never was.
func unknownSession(req *http.Request, id []byte) *http.Response {
	return refusal(req, http.StatusNotFound, id, codeNoSession, "Session not found")
}

// statusOf returns the HTTP status that goes with a response since MCP 2026-07-28
// ("Streamable HTTP": some errors have one of their own).
func statusOf(msg []byte) int {
	code := find(msg, span{0, len(msg)}, "error", "code")

	switch n, _ := strconv.Atoi(string(code.of(msg))); n { // 0 is no error
	case mcp.METHOD_NOT_FOUND:
		return http.StatusNotFound
	case mcp.INVALID_PARAMS, mcp.HEADER_MISMATCH, mcp.MISSING_REQUIRED_CLIENT_CAPABILITY, mcp.UNSUPPORTED_PROTOCOL_VERSION:
		return http.StatusBadRequest
	default:
		return http.StatusOK
	}
}
