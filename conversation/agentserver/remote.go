package agentserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// maxAnswer bounds what a client reads of an answer, in bytes.
const maxAnswer = 16 << 20

// ClientConfig says how to reach a remote agent server.
type ClientConfig struct {
	// URL is the agent server's base URL, http or https, with the prefix under
	// which it is served, if any.
	URL string
	// APIKey returns the key to send; it is asked for every request. Nil or ""
	// sends none.
	APIKey func() (string, error)
	// Timeout of a request; 0 means none but the context's.
	Timeout time.Duration
	// Transport sends the requests; by default an own one.
	Transport http.RoundTripper
}

// Client talks to a remote agent server. Redirects are not followed: the key is
// meant for the configured address.
type Client struct {
	base   *url.URL
	apiKey func() (string, error)
	http   *http.Client
}

// NewClient returns a client. It does no I/O.
func NewClient(cfg ClientConfig) (*Client, error) {
	base, err := url.Parse(cfg.URL)
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, errors.New("configuring an agent server client: URL must be an absolute http or https URL")
	}
	c := &Client{base: base, apiKey: cfg.APIKey, http: &http.Client{
		Transport: cfg.Transport,
		Timeout:   cfg.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse
		},
	}}
	if c.apiKey == nil {
		c.apiKey = func() (string, error) { return "", nil }
	}
	if c.http.Transport == nil {
		c.http.Transport = &http.Transport{Proxy: http.ProxyFromEnvironment, IdleConnTimeout: 90 * time.Second}
	}
	return c, nil
}

// Close closes the idle connections.
func (c *Client) Close() error {
	c.http.CloseIdleConnections()
	return nil
}

// Create makes a conversation, or finds the one of the given id, and reports
// whether it is new.
func (c *Client) Create(ctx context.Context, r CreateRequest) (*RemoteConversation, bool, error) {
	config := make(map[string]serverConfig, len(r.Servers))
	for _, server := range r.Servers {
		if err := server.validate(); err != nil {
			return nil, false, err
		}
		config[server.Name] = server.config(server.Headers)
	}
	body := struct {
		ConversationID ID        `json:"conversation_id,omitempty"`
		Agent          agentInfo `json:"agent"`
	}{r.ID, agentInfo{MCPConfig: config}}
	var info Info
	status, err := c.do(ctx, http.MethodPost, "api/conversations", body, &info)
	if err != nil {
		return nil, false, fmt.Errorf("creating a conversation: %w", err)
	}
	return &RemoteConversation{client: c, id: info.ID}, status == http.StatusCreated, nil
}

// Conversation returns the conversation of that id, a UUID. It does no I/O, so
// the conversation may not exist.
func (c *Client) Conversation(id string) (*RemoteConversation, error) {
	parsed, err := ParseID(id)
	if err != nil {
		return nil, err
	}
	return &RemoteConversation{client: c, id: parsed}, nil
}

// RemoteConversation is a conversation at a remote agent server.
type RemoteConversation struct {
	client *Client
	id     ID
}

// ID returns the conversation's id.
func (c *RemoteConversation) ID() ID { return c.id }

// Info returns what the agent server tells about the conversation.
func (c *RemoteConversation) Info(ctx context.Context) (Info, error) {
	var info Info
	if _, err := c.client.do(ctx, http.MethodGet, c.path(""), nil, &info); err != nil {
		return Info{}, fmt.Errorf("looking at a conversation: %w", err)
	}
	return info, nil
}

// Delete deletes the conversation.
func (c *RemoteConversation) Delete(ctx context.Context) error {
	if _, err := c.client.do(ctx, http.MethodDelete, c.path(""), nil, nil); err != nil {
		return fmt.Errorf("deleting a conversation: %w", err)
	}
	return nil
}

// RefreshMCPTools brings the tools of all the conversation's MCP clients up to
// date. An answer that isn't a success is a [*StatusError], which matches
// [ErrUnauthorized] and [ErrNotFound]; [ErrUnsupported] tells that the agent
// server doesn't have the action.
func (c *RemoteConversation) RefreshMCPTools(ctx context.Context) error {
	action := c.path("/refresh_mcp_tools")
	_, err := c.client.do(ctx, http.MethodPost, action, nil, nil)
	if errors.Is(err, ErrNotFound) && !c.client.exists(ctx, action) {
		err = ErrUnsupported
	}
	if err != nil {
		return fmt.Errorf("refreshing a conversation: %w", err)
	}
	return nil
}

func (c *RemoteConversation) path(action string) string {
	return "api/conversations/" + string(c.id) + action
}

// exists reports whether a path that answers POST only exists: then GET answers
// 405. An unknown conversation and an unknown action have the same 404.
func (c *Client) exists(ctx context.Context, path string) bool {
	_, err := c.do(ctx, http.MethodGet, path, nil, nil)
	status, ok := errors.AsType[*StatusError](err)
	return !ok || status.Code != http.StatusNotFound
}

// do sends one request, and reads a 2xx answer into result where that isn't nil.
func (c *Client) do(ctx context.Context, method, path string, body, result any) (status int, err error) {
	var content io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return 0, fmt.Errorf("encoding the request: %w", err)
		}
		content = bytes.NewReader(raw)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.JoinPath(path).String(), content)
	if err != nil {
		return 0, fmt.Errorf("making the request: %w", err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	key, err := c.apiKey()
	if err != nil {
		return 0, fmt.Errorf("reading the API key: %w", err)
	}
	if key != "" {
		req.Header.Set(apiKeyHeader, key)
	}

	resp, err := c.http.Do(req)
	if err != nil {
		return 0, withoutURL(err)
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return 0, fmt.Errorf("reading the answer: %w", err)
	}
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return resp.StatusCode, statusError(resp.StatusCode, raw)
	}
	if result == nil {
		return resp.StatusCode, nil
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return 0, fmt.Errorf("reading the answer: %w", err)
	}
	return resp.StatusCode, nil
}

// statusError reads what a failed answer says, as far as it has the agent
// server's shape.
func statusError(code int, body []byte) *StatusError {
	e := &StatusError{Code: code}
	var answer struct {
		Detail    json.RawMessage `json:"detail"`
		Exception string          `json:"exception"`
	}
	if json.Unmarshal(body, &answer) != nil {
		return e
	}
	e.Exception = answer.Exception
	if json.Unmarshal(answer.Detail, &e.Detail) != nil {
		e.Detail = string(answer.Detail) // the list of a 422
	}
	return e
}
