package admin

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// maxAnswer bounds what the client reads of one answer, in bytes.
const maxAnswer = 64 << 20

// Client calls the admin API of a running sidecar. It is safe for concurrent
// use. Errors are [*Error] where the sidecar answered with one, and say what
// to do where it couldn't be reached.
type Client struct {
	base      *url.URL
	tokenFile string
	http      *http.Client
}

// NewClient returns a client for the admin API at base, a URL or HOST:PORT. The
// token file may be "".
func NewClient(base, tokenFile string) (*Client, error) {
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("--admin: want the URL of the admin API, such as http://127.0.0.1:9091")
	}
	u.Path = strings.TrimSuffix(u.Path, "/")
	return &Client{base: u, tokenFile: tokenFile, http: &http.Client{
		Transport: &http.Transport{Proxy: http.ProxyFromEnvironment},
		// The token must not travel to another host.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Close closes idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status returns the sidecar at one glance.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var out Status
	err := c.do(ctx, http.MethodGet, "/v1/status", nil, &out)
	return out, err
}

// Servers returns all servers.
func (c *Client) Servers(ctx context.Context) ([]Server, error) {
	var out ServerList
	err := c.do(ctx, http.MethodGet, "/v1/servers", nil, &out)
	return out.Servers, err
}

// Check looks at a server now.
func (c *Client) Check(ctx context.Context, name string) (Server, error) {
	var out Server
	err := c.do(ctx, http.MethodPost, "/v1/servers/"+url.PathEscape(name)+"/check", nil, &out)
	return out, err
}

// Conversations returns one page of the conversations that q selects.
func (c *Client) Conversations(ctx context.Context, q conversation.Query) (ConversationPage, error) {
	v := url.Values{}
	for key, value := range map[string]string{
		"state": string(q.State), "server": q.Server, "agentServer": q.AgentServer, "cursor": q.Cursor,
	} {
		if value != "" {
			v.Set(key, value)
		}
	}
	if q.Limit > 0 {
		v.Set("limit", strconv.Itoa(q.Limit))
	}
	path := "/v1/conversations"
	if len(v) > 0 {
		path += "?" + v.Encode()
	}
	var out ConversationPage
	err := c.do(ctx, http.MethodGet, path, nil, &out)
	return out, err
}

// Conversation returns one conversation.
func (c *Client) Conversation(ctx context.Context, id string) (Conversation, error) {
	var out Conversation
	err := c.do(ctx, http.MethodGet, conversationPath(id), nil, &out)
	return out, err
}

// Register registers a conversation or renews its registration.
func (c *Client) Register(ctx context.Context, id string, reg Registration) (Conversation, error) {
	var out Conversation
	err := c.do(ctx, http.MethodPut, conversationPath(id), reg, &out)
	return out, err
}

// Remove forgets a conversation.
func (c *Client) Remove(ctx context.Context, id string) error {
	return c.do(ctx, http.MethodDelete, conversationPath(id), nil, nil)
}

// Refresh asks for a refresh whatever the conversation's state.
func (c *Client) Refresh(ctx context.Context, id string) (Conversation, error) {
	var out Conversation
	err := c.do(ctx, http.MethodPost, conversationPath(id)+"/refresh", nil, &out)
	return out, err
}

// Reload makes the sidecar read its configuration again.
func (c *Client) Reload(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/reload", nil, nil)
}

// Quiesce prepares the sidecar for its end.
func (c *Client) Quiesce(ctx context.Context) error {
	return c.do(ctx, http.MethodPost, "/v1/quiesce", nil, nil)
}

func conversationPath(id string) string { return "/v1/conversations/" + url.PathEscape(id) }

// do sends one request and decodes its answer into out.
func (c *Client) do(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the request: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.base.String()+path, body)
	if err != nil {
		return fmt.Errorf("making the request: %w", err)
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.tokenFile != "" {
		token, err := os.ReadFile(c.tokenFile)
		if err != nil {
			return fmt.Errorf("reading the admin token: %w", err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.explain(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return fmt.Errorf("reading the answer of %s: %w", c.base, err)
	}
	if resp.StatusCode >= 300 {
		return c.problem(resp, answer)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("%s doesn't answer like mcp-sidecar: is it the admin address? use --admin", c.base)
	}
	return nil
}

// explain says what to do about a sidecar that can't be reached.
func (c *Client) explain(err error) error {
	if ue, ok := errors.AsType[*url.Error](err); ok {
		err = ue.Err
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Errorf("connection refused at %s: is mcp-sidecar running? use --admin", c.base)
	}
	return fmt.Errorf("calling %s: %w", c.base, err)
}

func (c *Client) problem(resp *http.Response, answer []byte) error {
	mt, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	p := &Error{}
	if mt != "application/problem+json" || json.Unmarshal(answer, p) != nil || p.Status == 0 {
		return fmt.Errorf("%s answered %s and not like mcp-sidecar: is it the admin address? use --admin", c.base, resp.Status)
	}
	if p.Type == typePrefix+string(unauthorized) {
		if c.tokenFile == "" {
			return fmt.Errorf("%s wants a token: use --admin-token-file: %w", c.base, p)
		}
		return fmt.Errorf("%s doesn't accept the token in %s: %w", c.base, c.tokenFile, p)
	}
	return p
}
