package proxy

import (
	"encoding/json"
	"net/http"
)

// Codes of the sidecar's own JSON-RPC errors. They are outside the range that the
// protocol reserves (MCP 2026-07-28 "Basic: Error codes").
const (
	// CodeBackendAway says that the backend could not be asked.
	CodeBackendAway = -31001
	// CodeInterrupted says that the backend was lost while it had the request,
	// which may have run.
	CodeInterrupted = -31002
	// CodeTooManyHeld says that too many requests wait already.
	CodeTooManyHeld = -31003

	// codeNoSession goes with HTTP 404: some clients begin anew only when they
	// see it.
	codeNoSession = -32001
)

// Reason says in a JSON-RPC error of the sidecar's own why it failed a request.
type Reason string

// The reasons.
const (
	ReasonAway        Reason = "backend_away"  // not reachable for as long as requests are held
	ReasonNotReady    Reason = "not_ready"     // reachable, but it doesn't serve MCP yet
	ReasonInterrupted Reason = "interrupted"   // lost while it had the request
	ReasonBackend     Reason = "backend_error" // it answered with something that isn't MCP
	ReasonTooMany     Reason = "too_many_held"
	ReasonStopping    Reason = "stopping" // the sidecar is about to stop and holds nothing
)

// rpcFailure is a JSON-RPC error of the sidecar's own.
type rpcFailure struct {
	code            int
	text            string
	reason          Reason
	retryable       bool
	mayHaveExecuted bool
	outcome         outcome
}

func awayFailure(r Reason) *rpcFailure {
	text := "the MCP server is away: try again later"

	switch r {
	case ReasonNotReady:
		text = "the MCP server is starting: try again later"
	case ReasonStopping:
		text = "the MCP server is being replaced: try again"
	case ReasonAway, ReasonInterrupted, ReasonBackend, ReasonTooMany:
	}

	return &rpcFailure{code: CodeBackendAway, text: text, reason: r, retryable: true, outcome: outcomeUnavailable}
}

func tooManyFailure() *rpcFailure {
	return &rpcFailure{
		code: CodeTooManyHeld, text: "too many requests wait for the MCP server: try again later",
		reason: ReasonTooMany, retryable: true, outcome: outcomeUnavailable,
	}
}

// interruptedFailure is for a request that the backend had when it was lost. Only
// one that has no effect can be sent again by the client without a thought.
func interruptedFailure(r Reason, mayHaveExecuted bool) *rpcFailure {
	text := "the MCP server was interrupted: try again"
	if mayHaveExecuted {
		text = "the MCP server was interrupted: the request may have run"
	}

	return &rpcFailure{
		code: CodeInterrupted, text: text, reason: r, retryable: !mayHaveExecuted,
		mayHaveExecuted: mayHaveExecuted, outcome: outcomeBackend,
	}
}

// body is the failure as a JSON-RPC response to the request with a raw id.
func (f *rpcFailure) body(id []byte) []byte {
	return errorBody(id, f.code, f.text, struct {
		Reason          Reason `json:"reason"`
		Retryable       bool   `json:"retryable"`
		MayHaveExecuted bool   `json:"mayHaveExecuted"`
	}{f.reason, f.retryable, f.mayHaveExecuted})
}

// refuse answers a request that is malformed, forged or over a bound: an HTTP
// error with a JSON-RPC body.
func refuse(w http.ResponseWriter, status int, id []byte, code int, text string) {
	writeJSON(w, status, errorBody(id, code, text, nil))
}

// refuseSession answers a request for a session that doesn't exist, was forged or
// belongs to somebody else. Nothing tells which.
func refuseSession(w http.ResponseWriter, id []byte) {
	refuse(w, http.StatusNotFound, id, codeNoSession, "Session not found")
}

func writeJSON(w http.ResponseWriter, status int, body json.RawMessage) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
