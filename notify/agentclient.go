package notify

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
)

// AgentClient asks an agent server for other things than refreshes, by the same
// rules: the key and the CA file are read again for each request, redirects
// aren't followed, and forbidden addresses are refused when the connection is
// made. It is safe for concurrent use.
type AgentClient struct {
	transport *transport
}

// NewAgentClient returns a client. It doesn't connect yet.
func NewAgentClient(s AgentServer) (*AgentClient, error) {
	if err := s.validate(); err != nil {
		return nil, err
	}

	return &AgentClient{newTransport(s, NewMetrics(nil).client(s.label()))}, nil
}

// Get asks once for a path below the agent server's URL. It returns the body of a
// 2xx answer, which the caller bounds and closes; it ends with ctx. Anything else
// is an [Error], without secrets.
func (c *AgentClient) Get(ctx context.Context, path string, query url.Values) (io.ReadCloser, error) {
	u := c.transport.server.URL.JoinPath(path)
	q := u.Query()
	maps.Copy(q, query)
	u.RawQuery = q.Encode()
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		cancel()

		return nil, &Error{Reason: ReasonOther, Err: errors.New("building a request: the agent server's url is unusable")}
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("User-Agent", userAgent)
	resp, key, err := c.transport.open(req)
	if err != nil {
		cancel()

		return nil, err
	}
	page := &answer{status: resp.StatusCode, header: resp.Header}
	if resp.StatusCode/100 == 2 && !page.isPage() {
		return &answerBody{resp.Body, cancel}, nil
	}
	defer cancel()
	resp = c.transport.read(resp, key, cancel)
	defer resp.Body.Close()
	if e := answerOf(resp).classify(); e != nil {
		return nil, e
	}

	return nil, &Error{Reason: ReasonOther, Status: resp.StatusCode, Err: errors.New("the agent server's answer has an unexpected type")}
}

// Close releases the idle connections.
func (c *AgentClient) Close() { c.transport.base.CloseIdleConnections() }

// answerBody ends its request when it is closed.
type answerBody struct {
	io.ReadCloser

	cancel func()
}

// Close implements io.Closer.
func (b *answerBody) Close() error {
	defer b.cancel()

	return b.ReadCloser.Close()
}
