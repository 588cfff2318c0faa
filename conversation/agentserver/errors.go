package agentserver

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound means that the agent server has no such conversation.
	ErrNotFound = errors.New("conversation not found")
	// ErrUnauthorized means that the agent server refused the API key.
	ErrUnauthorized = errors.New("agent server refused the API key")
	// ErrUnsupported means that the agent server has no refresh_mcp_tools action.
	ErrUnsupported = errors.New("agent server has no refresh_mcp_tools action")
	// ErrClosed means that the server or the conversation was closed.
	ErrClosed = errors.New("conversation is closed")
	// ErrFull means that the server holds as many conversations as it may.
	ErrFull = errors.New("too many conversations")
	// ErrUnknownTool means that the conversation doesn't offer that tool (any more).
	ErrUnknownTool = errors.New("unknown tool")
	// ErrToolClash means that a client lists a tool under a name that is taken.
	ErrToolClash = errors.New("tool name is taken")
	// ErrClientExists means that the conversation has a client of that name.
	ErrClientExists = errors.New("client exists")
)

// RPCError is a JSON-RPC error that an MCP server answered.
type RPCError struct {
	Code    int
	Message string
	Data    any // as decoded from JSON; nil when there was none
}

// Error implements error.
func (e *RPCError) Error() string {
	return fmt.Sprintf("server answered error %d: %s", e.Code, e.Message)
}

// RefreshError reports every client of a conversation whose refresh failed. The
// other clients were refreshed.
type RefreshError struct {
	// Initial is true when the conversation hadn't connected its clients before.
	Initial bool
	// Errs has one error for each failed client.
	Errs []error
}

// Error implements error.
func (e *RefreshError) Error() string {
	doing := "refreshing MCP tools"
	if e.Initial {
		doing = "connecting MCP clients"
	}
	return fmt.Sprintf("%s: %v", doing, errors.Join(e.Errs...))
}

// Unwrap returns the errors of the clients.
func (e *RefreshError) Unwrap() []error { return e.Errs }

// exception is the text that the HTTP answer gives: how many clients failed,
// not why, which may hold addresses and answers of other systems.
func (e *RefreshError) exception() string {
	if e.Initial {
		return "MCP Connection Failure"
	}
	plural := "s"
	if len(e.Errs) == 1 {
		plural = ""
	}
	return fmt.Sprintf("Failed to refresh MCP tools (%d sub-exception%s)", len(e.Errs), plural)
}

// StatusError is an answer of a remote agent server that isn't a success. It
// matches [ErrNotFound] and [ErrUnauthorized] where the status says so.
type StatusError struct {
	Code      int    // HTTP status
	Detail    string // "detail" of the answer; "" when it wasn't JSON
	Exception string // "exception" of a 5xx answer
}

// Error implements error.
func (e *StatusError) Error() string {
	switch {
	case e.Exception != "":
		return fmt.Sprintf("agent server answered %d: %s", e.Code, e.Exception)
	case e.Detail != "":
		return fmt.Sprintf("agent server answered %d: %s", e.Code, e.Detail)
	default:
		return fmt.Sprintf("agent server answered %d", e.Code)
	}
}

// Is implements the matching of errors.Is.
func (e *StatusError) Is(target error) bool {
	switch e.Code {
	case 401, 403:
		return target == ErrUnauthorized
	case 404:
		return target == ErrNotFound
	default:
		return false
	}
}
