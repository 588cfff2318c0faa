//go:build unix

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// The revisions that the clients speak.
const (
	revision  = "2025-06-18"
	stateless = "2026-07-28"
)

// clientName is what the clients say who they are.
const clientName = "swaptest"

// client is an MCP client that recovers from nothing by itself, or from lost sessions if it is told to.
type client struct {
	url      string
	recovers bool // begins a new session after a 404 and repeats the request
	http     *http.Client
	last     atomic.Int64 // JSON-RPC id
	session  atomic.Pointer[session]
	renewing sync.Mutex
}

// session is what requests belong to. Its zero value is that before initialize.
type session struct {
	id       string // "" if there is none
	revision string
}

// errLost is the error of a request in a session that the server says not to know.
var errLost = errors.New("HTTP 404")

// newClient returns a client without a session.
func newClient(url, revision string) *client {
	c := &client{url: url, http: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	c.session.Store(&session{revision: revision})
	return c
}

// connect returns a client that has completed the handshake of the revisions with sessions. It is never nil.
func connect(ctx context.Context, url string) (*client, error) {
	c := newClient(url, "")
	return c, c.handshake(ctx)
}

func (c *client) handshake(ctx context.Context) error {
	first := &session{}
	m, header, err := c.exchange(ctx, first, "initialize", map[string]any{
		"protocolVersion": revision, "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": clientName, "version": "1"},
	})
	if err == nil {
		err = m.err()
	}
	if err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	var result struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(m.Result, &result); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	s := &session{id: header.Get("Mcp-Session-Id"), revision: result.ProtocolVersion}
	resp, err := c.send(ctx, s, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
	if err != nil {
		return fmt.Errorf("notifications/initialized: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("notifications/initialized: %w", refusal(resp))
	}
	c.session.Store(s)
	return nil
}

// renew begins a new session instead of one that is lost, unless another request of the client has done so.
func (c *client) renew(ctx context.Context, lost *session) error {
	c.renewing.Lock()
	defer c.renewing.Unlock()
	if c.session.Load() != lost {
		return nil
	}
	return c.handshake(ctx)
}

// close ends the session, if there is one.
func (c *client) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if s := c.session.Load(); s.id != "" {
		if resp, err := c.send(ctx, s, http.MethodDelete, "", nil); err == nil {
			resp.Body.Close()
		}
	}
	c.http.CloseIdleConnections()
}

// send sends one HTTP request.
func (c *client) send(ctx context.Context, s *session, method, body string, header map[string]string) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	switch method {
	case http.MethodPost:
		r.Header.Set("Content-Type", "application/json")
	case http.MethodGet:
		r.Header.Set("Accept", "text/event-stream")
	}
	if s.id != "" {
		r.Header.Set("Mcp-Session-Id", s.id)
	}
	if s.revision != "" {
		r.Header.Set("Mcp-Protocol-Version", s.revision)
	}
	for name, value := range header {
		r.Header.Set(name, value)
	}
	resp, err := c.http.Do(r)
	if err != nil {
		return nil, broken(ctx, err)
	}
	return resp, nil
}

// ask sends a request and returns its result. Anything else that comes is an error, short enough to be counted.
func (c *client) ask(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	m, err := c.request(ctx, method, params)
	if err == nil {
		err = m.err()
	}
	return m.Result, err
}

// request sends a request and returns the response to it, a result or an error, whatever status it came with.
func (c *client) request(ctx context.Context, method string, params map[string]any) (response, error) {
	s := c.session.Load()
	m, _, err := c.exchange(ctx, s, method, params)
	if !errors.Is(err, errLost) {
		return m, err
	}
	if err := c.renew(ctx, s); err != nil {
		return response{}, err
	}
	m, _, err = c.exchange(ctx, c.session.Load(), method, params)
	return m, err
}

// exchange is one request and the response to it, with the header that came.
func (c *client) exchange(ctx context.Context, s *session, method string, params map[string]any) (response, http.Header, error) {
	header := map[string]string{}
	if params == nil {
		params = map[string]any{}
	}
	if s.revision == stateless {
		params["_meta"] = map[string]any{
			"io.modelcontextprotocol/protocolVersion":    stateless,
			"io.modelcontextprotocol/clientInfo":         map[string]any{"name": clientName, "version": "1"},
			"io.modelcontextprotocol/clientCapabilities": map[string]any{},
		}
		header["Mcp-Method"] = method
		if name, ok := params["name"].(string); ok {
			header["Mcp-Name"] = name
		}
	}
	id := c.last.Add(1)
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return response{}, nil, err
	}
	resp, err := c.send(ctx, s, http.MethodPost, string(body), header)
	if err != nil {
		return response{}, nil, err
	}
	defer resp.Body.Close()
	if c.recovers && s.id != "" && resp.StatusCode == http.StatusNotFound {
		return response{}, nil, errLost
	}
	m, err := answer(ctx, resp, strconv.FormatInt(id, 10))
	return m, resp.Header, err
}

// call calls a tool and returns its text.
func (c *client) call(ctx context.Context, tool string, arguments any) (string, error) {
	raw, err := c.ask(ctx, "tools/call", map[string]any{"name": tool, "arguments": arguments})
	if err != nil {
		return "", err
	}
	var result struct {
		Content []struct {
			Text string `json:"text"`
		} `json:"content"`
		IsError bool `json:"isError"`
	}
	if err := json.Unmarshal(raw, &result); err != nil || len(result.Content) != 1 {
		return "", errors.New("a result without the one text that was expected")
	}
	if result.IsError {
		return "", fmt.Errorf("isError %q", short(result.Content[0].Text))
	}
	return result.Content[0].Text, nil
}

// list returns the names of the tools, in order.
func (c *client) list(ctx context.Context) ([]string, error) {
	raw, err := c.ask(ctx, "tools/list", nil)
	if err != nil {
		return nil, err
	}
	var result struct {
		Tools []struct {
			Name string `json:"name"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, err
	}
	var names []string
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	slices.Sort(names)
	return names, nil
}

// post asks the test backend for something.
func post(ctx context.Context, url string) error {
	c := newClient(url, "")
	defer c.http.CloseIdleConnections()
	resp, err := c.send(ctx, &session{}, http.MethodPost, "", nil)
	if err != nil {
		return fmt.Errorf("asking the test backend: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the test backend: %w", refusal(resp))
	}
	return nil
}
