package health

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
)

// How servers say that they don't know a session, and what only looks like it.
func TestSpellingsOfALostSession(t *testing.T) {
	rpc := func(code int, text string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":null,"error":{"code":%d,"message":%q}}`, code, text)
	}
	tests := []struct {
		name      string
		status    int
		body      string
		challenge bool
		want      Reason // with a session
		without   Reason // without one
	}{
		{"text", 404, "Invalid session ID", false, ReasonSessionLost, ReasonNotReady},
		{"nothing", 404, "", false, ReasonSessionLost, ReasonNotReady},
		{"JSON-RPC", 404, rpc(-32001, "gone"), false, ReasonSessionLost, ReasonRPCError},
		{"unknown method", 404, rpc(-32601, "method not found"), false, ReasonRPCError, ReasonRPCError},
		{"parameters that are a session", 404, rpc(-32602, "Invalid session ID"), false, ReasonSessionLost, ReasonRPCError},
		{"400 that names it", 400, rpc(-32000, "Bad Request: No valid session ID provided"), false, ReasonSessionLost, ReasonRPCError},
		{"400 about something else", 400, rpc(-32600, "bad"), false, ReasonRPCError, ReasonRPCError},
		{"400 text", 400, "bad", false, ReasonNotReady, ReasonNotReady},
		{"401 that names it", 401, "unknown session", false, ReasonSessionLost, ReasonUnauthorized},
		{"401 that wants credentials", 401, "session expired, log in", true, ReasonUnauthorized, ReasonUnauthorized},
		{"403", 403, "session", false, ReasonUnauthorized, ReasonUnauthorized},
		{"503 that names it", 503, "Session not found", false, ReasonSessionLost, ReasonNotReady},
		{"503", 503, "starting", false, ReasonNotReady, ReasonNotReady},
		{"500", 500, rpc(-32603, "boom"), false, ReasonNotReady, ReasonNotReady},
		{"429", 429, "", false, ReasonNotReady, ReasonNotReady},
		{"302", 302, "", false, ReasonNotReady, ReasonNotReady},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			for inSession, want := range map[bool]Reason{true: tt.want, false: tt.without} {
				x := &exchange{inSession: inSession, outcome: outcome{answered: true, status: tt.status, body: []byte(tt.body), challenge: tt.challenge}}
				e := classify(t.Context(), ProbePing, x, errors.New("mcp-go says something"), nil)
				if e == nil || e.Reason != want || e.status != tt.status {
					t.Errorf("in a session %t: got %+v, want %s", inSession, e, want)
				}
			}
		})
	}
	ok := &exchange{inSession: true, outcome: outcome{answered: true, status: http.StatusOK, mediaType: "application/json"}}
	if e := classify(t.Context(), ProbePing, ok, nil, &rpcError{Code: -32000, Message: "Unknown SESSION"}); e.Reason != ReasonSessionLost {
		t.Errorf("a good status with an error that names it: %+v", e)
	}
	if e := classify(t.Context(), ProbePing, ok, nil, &rpcError{Code: -32603, Message: "boom"}); e.Reason != ReasonRPCError {
		t.Errorf("a good status with an error: %+v", e)
	}
}

func TestRequestsWithoutAnAnswer(t *testing.T) {
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	tests := map[string]struct {
		ctx       func() context.Context
		err       error
		connected bool
		want      Reason
	}{
		"refused":       {t.Context, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}, false, ReasonRefused},
		"no socket":     {t.Context, &net.OpError{Op: "dial", Err: syscall.ENOENT}, false, ReasonRefused},
		"reset":         {t.Context, &net.OpError{Op: "read", Err: syscall.ECONNRESET}, true, ReasonReset},
		"ended":         {t.Context, io.EOF, true, ReasonReset},
		"stale":         {t.Context, errors.New("http: server closed idle connection"), true, ReasonReset},
		"no HTTP":       {t.Context, errors.New(`malformed HTTP response "secret"`), true, ReasonInvalid},
		"no name":       {t.Context, &net.DNSError{Err: "no such host"}, false, ReasonUnreachable},
		"slow name":     {t.Context, &net.DNSError{Err: "timeout", IsTimeout: true}, false, ReasonTimeout},
		"no route":      {t.Context, &net.OpError{Op: "dial", Err: syscall.EHOSTUNREACH}, false, ReasonUnreachable},
		"late":          {func() context.Context { return late }, context.DeadlineExceeded, true, ReasonTimeout},
		"stopped":       {func() context.Context { return canceled }, context.Canceled, true, ReasonCanceled},
		"no credential": {t.Context, fmt.Errorf("%w: no file", errCredentials), false, ReasonCredentials},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			x := &exchange{outcome: outcome{connected: tt.connected}}
			err := &url.Error{Op: "Post", URL: "http://x/?secret", Err: tt.err}
			e := classify(tt.ctx(), ProbePing, x, err, nil)
			if e == nil || e.Reason != tt.want {
				t.Fatalf("got %+v, want %s", e, tt.want)
			}
			if strings.Contains(e.Error(), "secret") {
				t.Errorf("%v leaks the URL", e)
			}
		})
	}
}
