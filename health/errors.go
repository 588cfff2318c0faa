package health

import (
	"errors"
	"fmt"
)

// Reason says why a probe failed. The set is closed: [Reasons] lists it, and backend_probes_failed_total has a series for
// each.
type Reason string

// Why a probe failed.
const (
	ReasonRefused        Reason = "refused"         // nothing listens
	ReasonReset          Reason = "reset"           // the connection ended before an answer
	ReasonTimeout        Reason = "timeout"         // no answer in time
	ReasonUnreachable    Reason = "unreachable"     // no connection for another reason: DNS, routing, TLS
	ReasonNotReady       Reason = "not_ready"       // an HTTP answer that isn't MCP: 404, 5xx, a page of HTML
	ReasonUnauthorized   Reason = "unauthorized"    // 401 or 403
	ReasonCredentials    Reason = "credentials"     // the sidecar's own headers could not be read
	ReasonSessionLost    Reason = "session_lost"    // the backend no longer knows the probe's session
	ReasonRPCError       Reason = "rpc_error"       // a JSON-RPC error
	ReasonInvalid        Reason = "invalid"         // an answer that can't be read
	ReasonDuplicateName  Reason = "duplicate_name"  // two tools with one name
	ReasonRepeatedCursor Reason = "repeated_cursor" // a cursor that leads in a circle
	ReasonTooLarge       Reason = "too_large"       // more bytes than allowed
	ReasonTooMany        Reason = "too_many"        // more tools, or pages, than allowed
	ReasonSwapped        Reason = "swapped"         // the process went away during the listing
	ReasonCanceled       Reason = "canceled"        // the sidecar itself gave up, for instance because it stops; not counted
)

// Reasons returns every [Reason] that is counted.
func Reasons() []Reason { return append(reasonsOfProbe(ProbeConnect), reasonsOfList()...) }

// reasonsOfProbe returns the reasons for which a probe can fail.
func reasonsOfProbe(probe string) []Reason {
	reasons := []Reason{
		ReasonRefused, ReasonReset, ReasonTimeout, ReasonUnreachable, ReasonNotReady, ReasonUnauthorized, ReasonCredentials,
	}
	if probe != ProbeHealth {
		reasons = append(reasons, ReasonSessionLost, ReasonRPCError, ReasonInvalid, ReasonTooLarge)
	}
	if probe == ProbeList {
		reasons = append(reasons, reasonsOfList()...)
	}
	return reasons
}

func reasonsOfList() []Reason {
	return []Reason{ReasonDuplicateName, ReasonRepeatedCursor, ReasonTooMany, ReasonSwapped}
}

// Error is a question to the backend that got no good answer. Its text has neither header values nor query strings in it.
type Error struct {
	Probe  string // one of [Probes]
	Reason Reason
	Err    error

	status int // of the HTTP answer; 0 if there was none
}

// Error says which probe failed, and how.
func (e *Error) Error() string { return e.Probe + ": " + e.Err.Error() }

// Unwrap returns what went wrong.
func (e *Error) Unwrap() error { return e.Err }

func failure(probe string, reason Reason, format string, args ...any) *Error {
	return &Error{Probe: probe, Reason: reason, Err: fmt.Errorf(format, args...)}
}

// reasonOf returns the reason within err, or "" if it has none.
func reasonOf(err error) Reason {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Reason
	}
	return ""
}

var (
	errNoTool = errors.New("is not a JSON object")
	errNoName = errors.New("has no name")
)
