package admin

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Error is a problem of RFC 9457: what the API answers, and the error that the
// client makes of it.
type Error struct {
	// Type is stable; programs branch on it.
	Type   string `json:"type"`
	Title  string `json:"title"`
	Status int    `json:"status"`
	// Detail is for people and says what to do.
	Detail string `json:"detail,omitempty"`
	// Problems lists every mistake of a configuration that wasn't taken.
	Problems []string `json:"problems,omitempty"`
}

// Error implements error.
func (p *Error) Error() string {
	if len(p.Problems) > 0 {
		return strings.Join(p.Problems, "\n")
	}
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

const typePrefix = "urn:mcp-sidecar:problem:"

// kind is the type of a problem, without the prefix.
type kind string

const (
	invalidRequest      kind = "invalid-request"
	unauthorized        kind = "unauthorized"
	forbidden           kind = "forbidden"
	notFound            kind = "not-found"
	unknownServer       kind = "unknown-server"
	unknownConversation kind = "unknown-conversation"
	methodNotAllowed    kind = "method-not-allowed"
	bodyTooLarge        kind = "body-too-large"
	unknownName         kind = "unknown-name"
	configRejected      kind = "configuration-rejected"
	internal            kind = "internal"
	unavailable         kind = "unavailable"
	timedOut            kind = "timed-out"
)

// describe returns the title and the status that all problems of a type have.
func (k kind) describe() (title string, status int) {
	switch k {
	case invalidRequest:
		return "The request is not valid", http.StatusBadRequest
	case unauthorized:
		return "A valid bearer token is needed", http.StatusUnauthorized
	case forbidden:
		return "The request is refused", http.StatusForbidden
	case notFound:
		return "There is nothing at this path", http.StatusNotFound
	case unknownServer:
		return "There is no such server", http.StatusNotFound
	case unknownConversation:
		return "There is no such conversation", http.StatusNotFound
	case methodNotAllowed:
		return "The path has no such method", http.StatusMethodNotAllowed
	case bodyTooLarge:
		return "The body is too large", http.StatusRequestEntityTooLarge
	case unknownName:
		return "The configuration has no server or agent server of that name", http.StatusUnprocessableEntity
	case configRejected:
		return "The configuration has mistakes; the last good one stays in force", http.StatusUnprocessableEntity
	case unavailable:
		return "Not possible at the moment", http.StatusServiceUnavailable
	case timedOut:
		return "It took too long", http.StatusGatewayTimeout
	case internal:
	}
	return "Something went wrong", http.StatusInternalServerError
}

func (k kind) with(detail string) *Error {
	title, status := k.describe()
	return &Error{Type: typePrefix + string(k), Title: title, Status: status, Detail: detail}
}

func (p *Error) write(w http.ResponseWriter) {
	writeBody(w, "application/problem+json", p.Status, p)
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	writeBody(w, "application/json", status, v)
}

func writeBody(w http.ResponseWriter, contentType string, status int, v any) {
	h := w.Header()
	h.Set("Content-Type", contentType)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	_ = e.Encode(v) // the client is gone: nobody to tell
}
