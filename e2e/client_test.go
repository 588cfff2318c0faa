//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// revision is the protocol version that the clients of the tests speak.
const revision = "2025-06-18"

// client is an MCP client that never tries anything again, and for which
// everything but the expected answer is an error.
type client struct {
	t       *testing.T
	url     string
	header  http.Header // of every request
	http    *http.Client
	session string
	last    atomic.Int64  // JSON-RPC id
	told    atomic.Int64  // notices that the tools changed
	other   atomic.Int64  // other messages on the stream
	ended   chan struct{} // closed when the stream has ended
}

// newClient returns a client that isn't connected.
func newClient(t *testing.T, url string) *client {
	t.Helper()
	// Go's server sends pings on idle connections only; one client may have many requests.
	transport := &http.Transport{MaxIdleConnsPerHost: 100}
	t.Cleanup(transport.CloseIdleConnections)
	return &client{t: t, url: url, header: http.Header{}, http: &http.Client{Transport: transport}}
}

// connect returns a client that has completed the handshake.
func connect(t *testing.T, url string) *client {
	t.Helper()
	c := newClient(t, url)
	c.handshake()
	return c
}

func (c *client) handshake() {
	c.t.Helper()
	params := map[string]any{
		"protocolVersion": revision, "capabilities": map[string]any{},
		"clientInfo": map[string]any{"name": "e2e", "version": "1"},
	}
	if _, err := c.ask(c.t.Context(), "initialize", params); err != nil {
		c.t.Fatal(err)
	}
	c.notify("notifications/initialized")
}

// notify sends a notification.
func (c *client) notify(method string) {
	c.t.Helper()
	a, err := c.post(c.t.Context(), fmt.Sprintf(`{"jsonrpc":"2.0","method":%q}`, method))
	if err != nil || a.status != http.StatusAccepted {
		c.t.Fatalf("%s: %d %s %v", method, a.status, a.body, err)
	}
}

// end ends the session.
func (c *client) end() {
	r, err := c.request(context.WithoutCancel(c.t.Context()), http.MethodDelete, http.NoBody)
	if err != nil {
		return
	}
	if resp, err := c.http.Do(r); err == nil {
		resp.Body.Close()
	}
}

func (c *client) request(ctx context.Context, method string, body io.Reader) (*http.Request, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(r.Header, c.header)
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("Mcp-Protocol-Version", revision)
	}
	return r, nil
}

// answer is what came back for one POST.
type answer struct {
	status  int
	header  http.Header
	body    string    // as it came
	message *response // the only response in it, if there is exactly one
}

// response is a JSON-RPC response.
type response struct {
	JSONRPC string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  string          `json:"method"`
	Result  json.RawMessage `json:"result"`
	Error   *rpcError       `json:"error"`
}

// rpcError is a JSON-RPC error, with what the sidecar adds to its own.
type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    struct {
		Reason          string `json:"reason"`
		Retryable       bool   `json:"retryable"`
		MayHaveExecuted bool   `json:"mayHaveExecuted"`
	} `json:"data"`
}

func (e *rpcError) Error() string { return fmt.Sprintf("error %d: %s", e.Code, e.Message) }

// post sends one body and reads what comes back.
func (c *client) post(ctx context.Context, body string) (answer, error) {
	r, err := c.request(ctx, http.MethodPost, strings.NewReader(body))
	if err != nil {
		return answer{}, err
	}
	return c.do(r)
}

func (c *client) do(r *http.Request) (answer, error) {
	resp, err := c.http.Do(r)
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	a := answer{status: resp.StatusCode, header: resp.Header, body: string(raw)}
	if err != nil {
		return a, fmt.Errorf("the answer broke off: %w", err)
	}
	messages := [][]byte{raw}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "text/event-stream" {
		messages = nil
		for e := range events(bytes.NewReader(raw)) {
			messages = append(messages, e)
		}
	}
	for _, m := range messages {
		var v response
		if json.Unmarshal(m, &v) != nil || v.Method != "" || v.JSONRPC == "" {
			continue
		}
		if a.message != nil {
			return a, fmt.Errorf("there are two responses: %s", a.body)
		}
		a.message = &v
	}
	return a, nil
}

// ask sends a request and returns its result. An error is whatever isn't one.
func (c *client) ask(ctx context.Context, method string, params any) (json.RawMessage, error) {
	if params == nil {
		params = struct{}{}
	}
	id := c.last.Add(1)
	body, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": id, "method": method, "params": params})
	if err != nil {
		return nil, err
	}
	a, err := c.post(ctx, string(body))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", method, err)
	case a.status != http.StatusOK || a.message == nil:
		return nil, fmt.Errorf("%s: %d %s", method, a.status, a.body)
	case string(a.message.ID) != strconv.FormatInt(id, 10):
		return nil, fmt.Errorf("%s: the answer to %d has id %s", method, id, a.message.ID)
	case a.message.Error != nil:
		return nil, fmt.Errorf("%s: %w", method, a.message.Error)
	}
	if method == "initialize" {
		c.session = a.header.Get("Mcp-Session-Id")
	}
	return a.message.Result, nil
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
	if err := json.Unmarshal(raw, &result); err != nil || len(result.Content) != 1 || result.IsError {
		return "", fmt.Errorf("calling %s: %s %w", tool, raw, err)
	}
	return result.Content[0].Text, nil
}

// toolset has the definition of each tool by name, with its keys in order.
type toolset map[string]string

// list asks for the tools.
func (c *client) list(ctx context.Context) (toolset, error) {
	raw, err := c.ask(ctx, "tools/list", nil)
	if err != nil {
		return nil, err
	}
	var result struct {
		Tools []map[string]any `json:"tools"`
	}
	if err := json.Unmarshal(raw, &result); err != nil {
		return nil, err
	}
	tools := toolset{}
	for _, tool := range result.Tools {
		text, err := json.Marshal(tool)
		if err != nil {
			return nil, err
		}
		tools[fmt.Sprint(tool["name"])] = string(text)
	}
	return tools, nil
}

// tools is list for tests that need it.
func (c *client) tools() toolset {
	c.t.Helper()
	tools, err := c.list(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	return tools
}

// stream opens the GET stream, and reads it until it or the test ends.
func (c *client) stream() {
	c.t.Helper()
	if err := c.open(c.t.Context()); err != nil {
		c.t.Fatal(err)
	}
}

// open is stream for clients that work on their own. The stream outlives ctx.
func (c *client) open(ctx context.Context) error {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	r, err := c.request(ctx, http.MethodGet, http.NoBody)
	if err != nil {
		cancel()
		return err
	}
	resp, err := c.http.Do(r) //nolint:bodyclose // by whoever reads it
	if err != nil {
		cancel()
		return err
	}
	if kind := resp.Header.Get("Content-Type"); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
		resp.Body.Close()
		cancel()
		return fmt.Errorf("opening a stream: %d %s", resp.StatusCode, kind)
	}
	ended := make(chan struct{})
	c.ended = ended
	go func() {
		defer close(ended)
		defer resp.Body.Close()
		for e := range events(resp.Body) {
			if bytes.Contains(e, []byte("notifications/tools/list_changed")) {
				c.told.Add(1)
			} else {
				c.other.Add(1)
			}
		}
	}()
	c.t.Cleanup(func() { cancel(); <-ended })
	return nil
}

// events returns the data of the events of a stream.
func events(r io.Reader) func(yield func([]byte) bool) {
	return func(yield func([]byte) bool) {
		in := bufio.NewScanner(r)
		in.Buffer(nil, 32<<20)
		for in.Scan() {
			if data, ok := bytes.CutPrefix(in.Bytes(), []byte("data:")); ok && !yield(bytes.TrimSpace(data)) {
				return
			}
		}
	}
}

// crowd is clients that call a tool which only reads all the time, and list the
// tools whenever they are told that these changed.
type crowd struct {
	t       *testing.T
	clients []*client
	calls   atomic.Int64
	reopen  atomic.Bool // a stream that ended is opened again
	stop    func()      // waits for the calls under way

	mu       sync.Mutex
	failures []error
	lists    []toolset // by client
}

// pause is the time between two calls of one client of a crowd.
const pause = 40 * time.Millisecond

// startCrowd connects n clients at url and lets them begin.
func startCrowd(t *testing.T, url string, n int) *crowd {
	t.Helper()
	w := &crowd{t: t, lists: make([]toolset, n)}
	for range n {
		w.clients = append(w.clients, connect(t, url))
	}
	for i, c := range w.clients {
		c.stream()
		w.lists[i] = c.tools()
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	for i := range w.clients {
		wg.Go(func() { w.work(ctx, i) })
	}
	w.stop = sync.OnceFunc(func() { cancel(); wg.Wait() })
	t.Cleanup(w.stop)
	return w
}

// work is what one client does until ctx ends; what it has begun then it finishes.
func (w *crowd) work(ctx context.Context, i int) {
	c := w.clients[i]
	running := context.WithoutCancel(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	listed := c.told.Load()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		want := fmt.Sprintf(`{"account":"%d-%d"}`, i, n)
		got, err := c.call(running, "balance", json.RawMessage(want))
		if err == nil && got != want {
			err = fmt.Errorf("the answer to %s is %s", want, got)
		}
		if told := c.told.Load(); err == nil && told != listed {
			listed = told
			var tools toolset
			if tools, err = c.list(running); err == nil {
				w.mu.Lock()
				w.lists[i] = tools
				w.mu.Unlock()
			}
		}
		if err == nil && w.reopen.Load() {
			select {
			case <-c.ended:
				err = c.open(running)
			default:
			}
		}
		w.calls.Add(1)
		if err != nil {
			w.mu.Lock()
			w.failures = append(w.failures, fmt.Errorf("client %d, call %d: %w", i, n, err))
			w.mu.Unlock()
			return
		}
		timer.Reset(pause)
	}
}

// waitTools waits until every client lists these tools.
func (w *crowd) waitTools(want toolset) {
	w.t.Helper()
	proc.Eventually(w.t, "every client to list the tools of the backend", func() bool {
		w.check()
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, got := range w.lists {
			if !equal(got, want) {
				return false
			}
		}
		return true
	})
}

// waitCalls waits until every client has completed a call that began from now on.
func (w *crowd) waitCalls() {
	w.t.Helper()
	goal := w.calls.Load() + 3*int64(len(w.clients))
	proc.Eventually(w.t, "calls of the clients", func() bool {
		w.check()
		return w.calls.Load() >= goal
	})
}

// check fails the test when a call has failed.
func (w *crowd) check() {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.failures) > 0 {
		w.t.Fatalf("%d calls failed of %d: %v", len(w.failures), w.calls.Load(), errors.Join(w.failures...))
	}
}

// told fails the test unless every client was told so often that the tools
// changed, and has its stream still.
func (w *crowd) told(want int64) {
	w.t.Helper()
	for i, c := range w.clients {
		if got := c.told.Load(); got != want {
			w.t.Errorf("client %d was told %d times that the tools changed, want %d", i, got, want)
		}
		select {
		case <-c.ended:
			w.t.Errorf("the stream of client %d has ended", i)
		default:
		}
	}
}

func equal(a, b toolset) bool {
	if len(a) != len(b) {
		return false
	}
	for name, text := range a {
		if b[name] != text {
			return false
		}
	}
	return true
}
