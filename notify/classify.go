package notify

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"time"
)

// answer is the response of an agent server, read whole and bounded. It is the
// Body of the responses of [transport].
type answer struct {
	*bytes.Reader // over body, for what net/http and retryablehttp drain

	status  int
	header  http.Header
	body    []byte
	cut     bool // the body was longer than it may be, or broke off
	key     string
	secrets []string
}

// Close does nothing: the connection was released when the body was read.
func (a *answer) Close() error { return nil }

func answerOf(resp *http.Response) *answer {
	if a, ok := resp.Body.(*answer); ok {
		return a
	}

	return &answer{Reader: bytes.NewReader(nil), status: resp.StatusCode, header: resp.Header}
}

// classify returns nil for an answer that says "done", else what it means. It
// sees one answer: what a 404 means takes more questions, see [client.resolve].
func (a *answer) classify() *Error {
	reason := a.reason()
	if reason == "" {
		return nil
	}
	e := &Error{Reason: reason, Status: a.status}
	if wait, ok := retryAfter(a.header, time.Now()); ok {
		e.RetryAfter = wait
	}
	if reason == ReasonRedirect {
		e.Err = fmt.Errorf("the agent server answered %d and redirects to %s: set its url to the final address "+
			"(redirects are not followed)", a.status, a.redirectTarget())

		return e
	}
	text := redactText(a.text(), a.secrets...)
	switch {
	case reason == ReasonIngress:
		e.Err = fmt.Errorf("something in front of the agent server answered %d", a.status)
	case reason == ReasonAuth:
		e.Err = fmt.Errorf("the agent server answered %d: check the API key that is configured for it", a.status)
	case text != "":
		e.Err = fmt.Errorf("the agent server answered %d: %s", a.status, text)
	default:
		e.Err = fmt.Errorf("the agent server answered %d", a.status)
	}

	return e
}

// reason maps the status, and for the answers of ingresses the body, to a
// [Reason]; "" means done.
func (a *answer) reason() Reason {
	if a.isPage() && (a.status < 300 || a.status >= 400) {
		return ReasonIngress
	}
	switch a.status {
	case http.StatusUnauthorized, http.StatusForbidden:
		return ReasonAuth
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusGone:
		if a.object() == nil && a.status != http.StatusMethodNotAllowed {
			return ReasonIngress
		}

		return ReasonNotFound
	case http.StatusConflict:
		return ReasonConflict
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests:
		return ReasonThrottled
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		if a.object() == nil {
			return ReasonIngress
		}

		return ReasonServerError
	}
	switch a.status / 100 {
	case 2:
		return ""
	case 3:
		return ReasonRedirect
	case 4:
		return ReasonRejected
	case 5:
		return ReasonServerError
	default:
		return ReasonOther
	}
}

// isPage tells an HTML page, which no action of an agent server answers with.
func (a *answer) isPage() bool {
	switch t, _, _ := mime.ParseMediaType(a.header.Get("Content-Type")); t {
	case "text/html", "application/xhtml+xml":
		return true
	case "application/json":
		return false
	}

	return bytes.HasPrefix(bytes.TrimSpace(a.body), []byte("<"))
}

// object returns the body if it is one JSON object and complete, else nil.
func (a *answer) object() map[string]json.RawMessage {
	if a.cut {
		return nil
	}
	var o map[string]json.RawMessage
	if json.Unmarshal(a.body, &o) != nil {
		return nil
	}

	return o
}

// text returns what the answer says about the cause: the "exception" or "detail"
// of an agent server's error, else a plain body.
func (a *answer) text() string {
	o := a.object()
	if o == nil {
		return string(a.body)
	}
	for _, member := range []string{"exception", "detail", "message", "error"} {
		raw, ok := o[member]
		if !ok {
			continue
		}
		var s string
		if json.Unmarshal(raw, &s) == nil {
			return s
		}

		return string(raw)
	}

	return ""
}

// redirectTarget returns scheme and host of the Location; the rest may hold
// secrets.
func (a *answer) redirectTarget() string {
	u, err := url.Parse(a.header.Get("Location"))
	if err != nil || u.Host == "" {
		return "another path"
	}

	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String()
}

// retriesSoon tells whether an attempt that failed for this reason is worth a
// second one within the same call. Everything else waits in the queue, or for a
// change.
func (r Reason) retriesSoon() bool {
	switch r {
	case ReasonNetwork, ReasonTimeout, ReasonThrottled, ReasonServerError, ReasonIngress,
		ReasonAuth, ReasonCredential: // the key may just be rotating
		return true
	default:
		return false
	}
}

// errCallTimeout is the cause of a call that took too long.
var errCallTimeout = errors.New("the agent server did not answer in time")
