package notify

import (
	"errors"
	"slices"
	"time"
)

// Reason says why a refresh, or one request of it, didn't succeed. The set is
// closed: the same values stand in errors, records, metrics and documentation.
type Reason string

// The reasons.
const (
	// ReasonNetwork: the agent server could not be reached, or the connection broke.
	ReasonNetwork Reason = "network"
	// ReasonTimeout: no answer in time.
	ReasonTimeout Reason = "timeout"
	// ReasonTLS: the certificate was not accepted, or the CA file is unusable.
	ReasonTLS Reason = "tls"
	// ReasonForbiddenAddress: the name leads to an address that is never called
	// (link-local, cloud metadata, unspecified, multicast).
	ReasonForbiddenAddress Reason = "forbidden_address"
	// ReasonRedirect: the agent server answered with a redirect, which is not followed.
	ReasonRedirect Reason = "redirect"
	// ReasonCredential: the API key could not be read, or is empty.
	ReasonCredential Reason = "credential"
	// ReasonAuth: 401 or 403, the key was not accepted.
	ReasonAuth Reason = "auth"
	// ReasonRejected: 400, 422 or another 4xx that a repetition doesn't change.
	ReasonRejected Reason = "rejected"
	// ReasonConflict: 409, the conversation can't be refreshed at the moment.
	ReasonConflict Reason = "conflict"
	// ReasonThrottled: 408, 425 or 429, the agent server asks for a later try.
	ReasonThrottled Reason = "throttled"
	// ReasonServerError: a 5xx of the agent server itself.
	ReasonServerError Reason = "server_error"
	// ReasonIngress: a page of something in between, as when a sandbox is paused.
	ReasonIngress Reason = "ingress"
	// ReasonNotFound: 404, and it could not be found out what is missing.
	ReasonNotFound Reason = "not_found"
	// ReasonLeaseHeld: 404 from the action although the conversation exists:
	// another instance of the agent server holds it.
	ReasonLeaseHeld Reason = "lease_held"
	// ReasonGone: the conversation no longer exists.
	ReasonGone Reason = "gone"
	// ReasonAllGone: every conversation of the agent server is said to be gone;
	// all are kept.
	ReasonAllGone Reason = "all_gone"
	// ReasonUnsupported: the agent server has no refresh action.
	ReasonUnsupported Reason = "unsupported"
	// ReasonNotConnected: the agent server answered, and says that the
	// conversation has no connection to the MCP server.
	ReasonNotConnected Reason = "not_connected"
	// ReasonNotObserved: the agent server answered 2xx, and the conversation,
	// whose listings are seen otherwise, didn't list the tools.
	ReasonNotObserved Reason = "not_observed"
	// ReasonSuperseded: a newer generation, or the end of the registration, made
	// the call pointless.
	ReasonSuperseded Reason = "superseded"
	// ReasonUnknownServer: no agent server of that name is configured.
	ReasonUnknownServer Reason = "unknown_agent_server"
	// ReasonOther: everything else, such as an answer outside of HTTP's classes.
	ReasonOther Reason = "other"
)

// Reasons returns every reason, in the order of the documentation.
func Reasons() []Reason {
	return []Reason{
		ReasonNetwork, ReasonTimeout, ReasonTLS, ReasonForbiddenAddress, ReasonRedirect,
		ReasonCredential, ReasonAuth, ReasonRejected, ReasonConflict, ReasonThrottled,
		ReasonServerError, ReasonIngress, ReasonNotFound, ReasonLeaseHeld, ReasonGone,
		ReasonAllGone, ReasonUnsupported, ReasonNotConnected, ReasonNotObserved,
		ReasonSuperseded, ReasonUnknownServer, ReasonOther,
	}
}

// requestReasons returns the reasons that a single request can fail with; the
// others take several requests, or none.
func requestReasons() []Reason {
	return []Reason{
		ReasonNetwork, ReasonTimeout, ReasonTLS, ReasonForbiddenAddress, ReasonRedirect,
		ReasonCredential, ReasonAuth, ReasonRejected, ReasonConflict, ReasonThrottled,
		ReasonServerError, ReasonIngress, ReasonNotFound, ReasonOther,
	}
}

// known returns r itself when it is one of [Reasons], else [ReasonOther].
func (r Reason) known() Reason {
	if slices.Contains(Reasons(), r) {
		return r
	}

	return ReasonOther
}

// Error is what a refresh, or one request of it, failed with. Its text carries
// no credentials and at most a short excerpt of an answer.
type Error struct {
	// Reason is one of [Reasons].
	Reason Reason
	// Status is the HTTP status of the answer, 0 without one.
	Status int
	// RetryAfter is how long the agent server asked to wait at least.
	RetryAfter time.Duration
	// Err is the cause.
	Err error
}

// Error returns the text of the cause.
func (e *Error) Error() string {
	if e.Err == nil {
		return string(e.Reason)
	}

	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ReasonOf returns the reason of the first [Error] in err's tree, "" for nil, and
// [ReasonOther] for an error without one.
func ReasonOf(err error) Reason {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason.known()
	}

	return ReasonOther
}

// asError returns the first [Error] in err's tree, or err as one.
func asError(err error) *Error {
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}

	return &Error{Reason: ReasonOther, Err: err}
}
