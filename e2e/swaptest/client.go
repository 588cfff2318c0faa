//go:build unix

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

// client is an MCP client that never recovers from anything by itself.
type client struct {
	url      string
	revision string
	session  string
	http     *http.Client
	last     atomic.Int64 // JSON-RPC id
}

// newClient returns a client that isn't connected.
func newClient(url, revision string) *client {
	return &client{url: url, revision: revision, http: &http.Client{
		Transport:     &http.Transport{MaxIdleConnsPerHost: 100, DisableCompression: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// connect returns a client that has completed the handshake of the revisions with sessions. It is never nil.
func connect(ctx context.Context, url string) (*client, error) {
	c := newClient(url, revision)
	raw, err := c.ask(ctx, "initialize", map[string]any{
		"protocolVersion": revision, "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": clientName, "version": "1"},
	})
	if err != nil {
		return c, err
	}
	var result struct {
		ProtocolVersion string `json:"protocolVersion"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return c, fmt.Errorf("initialize: %w", err)
	}
	c.revision = result.ProtocolVersion
	resp, err := c.send(ctx, http.MethodPost, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, nil)
	if err != nil {
		return c, fmt.Errorf("notifications/initialized: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return c, fmt.Errorf("notifications/initialized: %w", refusal(resp))
	}
	return c, nil
}

// close ends the session, if there is one.
func (c *client) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	if c.session != "" {
		if resp, err := c.send(ctx, http.MethodDelete, "", nil); err == nil {
			resp.Body.Close()
		}
	}
	c.http.CloseIdleConnections()
}

// send sends one HTTP request.
func (c *client) send(ctx context.Context, method, body string, header map[string]string) (*http.Response, error) {
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
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
	}
	if c.session != "" || c.revision == stateless {
		r.Header.Set("Mcp-Protocol-Version", c.revision)
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

// response is a JSON-RPC response.
type response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result"`
	Error   *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// ask sends a request and returns its result. Anything else that comes is an error, short enough to be counted.
func (c *client) ask(ctx context.Context, method string, params map[string]any) (json.RawMessage, error) {
	m, err := c.request(ctx, method, params)
	if err != nil {
		return nil, err
	}
	if m.Error != nil {
		return nil, fmt.Errorf("JSON-RPC error %d %s", m.Error.Code, short(m.Error.Message))
	}
	return m.Result, nil
}

// request sends a request and returns the response to it, a result or an error, whatever status it came with.
func (c *client) request(ctx context.Context, method string, params map[string]any) (response, error) {
	header := map[string]string{}
	if params == nil {
		params = map[string]any{}
	}
	if c.revision == stateless {
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
		return response{}, err
	}
	resp, err := c.send(ctx, http.MethodPost, string(body), header)
	if err != nil {
		return response{}, err
	}
	defer resp.Body.Close()
	m, err := answer(ctx, resp, strconv.FormatInt(id, 10))
	if err == nil && method == "initialize" {
		c.session = resp.Header.Get("Mcp-Session-Id")
	}
	return m, err
}

// answer reads the response to the request with this id.
func answer(ctx context.Context, resp *http.Response, id string) (response, error) {
	var found response
	is := func(raw []byte) bool {
		found = response{}
		return json.Unmarshal(raw, &found) == nil && found.JSONRPC != "" && found.Method == "" && string(found.ID) == id
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		if err := events(resp.Body, func(raw []byte) bool { return !is(raw) }); err != nil {
			return response{}, broken(ctx, err)
		}
		if string(found.ID) != id {
			return response{}, errors.New("the answer's stream ended without the response")
		}
		return found, nil
	}
	raw, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return response{}, broken(ctx, err)
	}
	if !is(raw) {
		resp.Body = io.NopCloser(bytes.NewReader(raw))
		return response{}, refusal(resp)
	}
	return found, nil
}

// events reads an event stream and passes on the data of each event, until yield returns false. An error says that the
// stream broke off.
func events(r io.Reader, yield func([]byte) bool) error {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		if data, ok := bytes.CutPrefix(in.Bytes(), []byte("data:")); ok && !yield(bytes.TrimSpace(data)) {
			return nil
		}
	}
	return in.Err()
}

// refusal describes an answer that isn't the response that was asked for.
func refusal(resp *http.Response) error {
	raw, _ := io.ReadAll(io.LimitReader(resp.Body, 16<<10))
	var m response
	if json.Unmarshal(raw, &m) == nil && m.Error != nil {
		return fmt.Errorf("HTTP %d %s", resp.StatusCode, short(m.Error.Message))
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/html" {
		raw = nil
	}
	return errors.New(strings.TrimSpace(fmt.Sprintf("HTTP %d %s", resp.StatusCode, short(string(raw)))))
}

// broken describes why an answer didn't come or broke off, without addresses, so that it can be counted.
func broken(ctx context.Context, err error) error {
	switch {
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return errors.New("no answer in time")
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("connection closed without an answer")
	}
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return errors.New(short(err.Error()))
}

// short is the beginning of a text, on one line.
func short(text string) string {
	if text = oneLine(text); len(text) > 80 {
		text = strings.ToValidUTF8(text[:80], "") + "…"
	}
	return text
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

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
	resp, err := c.send(ctx, http.MethodPost, "", nil)
	if err != nil {
		return fmt.Errorf("asking the test backend: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("asking the test backend: %w", refusal(resp))
	}
	return nil
}
