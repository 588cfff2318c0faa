package notify

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const (
	// shortRetries is how often one call tries again; everything longer is the
	// queue's.
	shortRetries = 2
	shortestWait = 200 * time.Millisecond
	longestWait  = 2 * time.Second

	conversationsPath = "/api/conversations/"
	conversationPath  = conversationsPath + "{id}"
	reconnectPath     = conversationPath + "/reconnect_mcp"

	// DefaultRefreshPath is the refresh action under an agent server's URL.
	DefaultRefreshPath = conversationPath + "/refresh_mcp_tools"
)

// call is one refresh of one conversation.
type call struct {
	id conversation.ID
	// servers are our names of the servers that the refresh is about.
	servers []string
	// forced: somebody asked for it, so what is remembered of the agent server isn't good enough.
	forced bool
	// gate is asked before every request; its error ends the call.
	gate func() error
}

// client calls one agent server. It is safe for concurrent use.
type client struct {
	server  AgentServer
	http    *retryablehttp.Client
	base    *http.Transport
	support *support
}

func newClient(s AgentServer, m *clientMetrics) *client {
	t := newTransport(s, m)
	c := &client{server: s, base: t.base, support: &support{}}
	c.http = &retryablehttp.Client{
		HTTPClient: &http.Client{
			Transport:     t,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		Logger:       nil,
		RetryWaitMin: shortestWait,
		RetryWaitMax: longestWait,
		RetryMax:     shortRetries,
		CheckRetry:   checkRetry,
		Backoff:      shortBackoff,
		ErrorHandler: retryablehttp.PassthroughErrorHandler,
		PrepareRetry: func(req *http.Request) error { return passGate(req.Context()) },
	}

	return c
}

// close releases the idle connections. Running calls go on.
func (c *client) close() { c.base.CloseIdleConnections() }

type gateKey struct{}

func withGate(ctx context.Context, gate func() error) context.Context {
	return context.WithValue(ctx, gateKey{}, gate)
}

func passGate(ctx context.Context) error {
	if gate, ok := ctx.Value(gateKey{}).(func() error); ok && gate != nil {
		return gate()
	}

	return nil
}

// checkRetry decides about a second attempt within the same call.
func checkRetry(ctx context.Context, resp *http.Response, err error) (bool, error) {
	return ctx.Err() == nil && worthRetry(resp, err), nil
}

func worthRetry(resp *http.Response, err error) bool {
	if err != nil {
		return ReasonOf(err).retriesSoon()
	}
	e := answerOf(resp).classify()
	if e == nil || e.Status == http.StatusNotFound || e.Status == http.StatusGone {
		return false
	}
	// A longer wait is the queue's: here it would keep others from their turn.
	return e.Reason.retriesSoon() && e.RetryAfter <= longestWait
}

// shortBackoff is exponential with jitter (0.5 to 1.5 times), and never less than
// what the answer asked for.
func shortBackoff(minWait, maxWait time.Duration, attempt int, resp *http.Response) time.Duration {
	wait := jitter(min(minWait<<attempt, maxWait))
	if resp != nil {
		if asked, ok := retryAfter(resp.Header, time.Now()); ok {
			wait = max(wait, asked)
		}
	}

	return wait
}

// jitter returns between 0.5 and 1.5 times d.
func jitter(d time.Duration) time.Duration {
	return d/2 + rand.N(d+1) //nolint:gosec // spreads load, protects nothing
}

// do sends one request, with short retries. For an answer that isn't 2xx it
// returns the answer and the [Error] that classifies it.
func (c *client) do(ctx context.Context, method string, u *url.URL) (*answer, *Error) {
	if err := passGate(ctx); err != nil {
		return nil, asError(err)
	}
	req, err := retryablehttp.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, &Error{Reason: ReasonOther, Err: errors.New("building a request: the agent server's url is unusable")}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	// The action may be repeated, so net/http may do it too where the agent server
	// closed an idle connection at the wrong moment. A nil value isn't sent.
	req.Header["Idempotency-Key"] = nil
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.failure(ctx, err)
	}
	defer resp.Body.Close()
	a := answerOf(resp)

	return a, a.classify()
}

// failure returns the [Error] of an attempt, or makes one of what net/http itself
// refused, such as a malformed Location.
func (c *client) failure(ctx context.Context, err error) *Error {
	if ctx.Err() != nil {
		return interrupted(ctx)
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok { // its text has the URL
		err = e.Err
	}

	return &Error{Reason: ReasonOther, Err: fmt.Errorf("calling agent server %s: %s",
		c.server.Name, redactText(err.Error(), c.server.secrets("")...))}
}

// interrupted says why ctx ended a call.
func interrupted(ctx context.Context) *Error {
	return &Error{Reason: ReasonTimeout, Err: context.Cause(ctx)}
}

// action returns the URL of an action of a conversation.
func (c *client) action(id conversation.ID, path string) *url.URL {
	return c.server.URL.JoinPath(strings.ReplaceAll(path, "{id}", url.PathEscape(string(id))))
}

// refresh makes the agent server refresh one conversation. A nil error means that
// it said so; whether the conversation did list the tools is another question.
func (c *client) refresh(ctx context.Context, cl call) error {
	ctx = withGate(ctx, cl.gate)
	if cl.forced && c.support.current() != modeRefresh {
		c.support.set(modeUnknown)
	}
	c.recheck(ctx)
	switch c.support.current() {
	case modeNone:
		return errUnsupported()
	case modeReconnect:
		return c.reconnect(ctx, cl)
	case modeUnknown, modeRefresh:
	}
	_, absent, err := c.act(ctx, cl.id, c.server.RefreshPath, modeRefresh)
	if absent {
		return c.reconnect(ctx, cl)
	}

	return err
}

// act posts to an action of a conversation. It finds out what a 404 means, and
// remembers m as what the agent server offers once the action is known to exist;
// absent says that it doesn't.
func (c *client) act(ctx context.Context, id conversation.ID, path string, m mode) (a *answer, absent bool, err error) {
	u := c.action(id, path)
	a, failure := c.do(ctx, http.MethodPost, u)
	switch {
	case failure == nil:
		c.support.set(m)

		return a, false, nil
	case failure.Reason != ReasonNotFound:
		return nil, false, failure
	case a.status == http.StatusMethodNotAllowed:
		return nil, true, nil
	}
	present, failure := c.present(ctx, u)
	if failure != nil {
		return nil, false, failure
	}
	if !present {
		return nil, true, nil
	}
	c.support.set(m)

	return nil, false, c.missing(ctx, id)
}

// present tells whether the agent server has the POST action at u: GET on it is
// answered with 405 then, and does nothing.
func (c *client) present(ctx context.Context, u *url.URL) (bool, *Error) {
	a, err := c.do(ctx, http.MethodGet, u)
	if a == nil {
		return false, err
	}
	switch {
	case a.status == http.StatusMethodNotAllowed:
		return true, nil
	case a.status == http.StatusNotFound && err.Reason == ReasonNotFound:
		return false, nil
	case err != nil && err.Reason != ReasonRejected:
		return false, err
	default:
		return false, &Error{
			Reason: ReasonNotFound, Status: a.status,
			Err: fmt.Errorf("the refresh action answered 404, and GET on it %d: whether it exists can't be told", a.status),
		}
	}
}

// missing finds out what a 404 of an existing action means.
func (c *client) missing(ctx context.Context, id conversation.ID) *Error {
	a, err := c.do(ctx, http.MethodGet, c.action(id, conversationPath))
	switch {
	case a == nil:
		return err
	case err == nil:
		return &Error{
			Reason: ReasonLeaseHeld, Status: http.StatusNotFound,
			Err: errors.New("the conversation exists, but another instance of the agent server holds it"),
		}
	case err.Reason == ReasonNotFound && a.status != http.StatusMethodNotAllowed:
		return &Error{
			Reason: ReasonGone, Status: a.status,
			Err: errors.New("the agent server no longer has the conversation"),
		}
	default:
		return err
	}
}

func errUnsupported() *Error {
	return &Error{
		Reason: ReasonUnsupported, Status: http.StatusNotFound,
		Err: errors.New("the agent server has no refresh action: its conversations see new tools only if their " +
			"MCP client follows list_changed; update the agent server, or set refreshPath to the action's path"),
	}
}
