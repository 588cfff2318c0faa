//go:build soak && unix

package soak

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
)

const (
	legacy = "2025-11-25"
	modern = "2026-07-28"
	// pace is the pause of a client between two requests: the machine shall have
	// time for all of them.
	pace = 20 * time.Millisecond
	// registered is how many conversations there are at one time.
	registered = 30
)

// crowd are clients of a sidecar.
type crowd struct {
	addr string
	api  *admin.Client
	http *http.Client

	answered, failed, sessions, streams, conversations atomic.Int64
	lastFailure                                        atomic.Pointer[string]
}

func newCrowd(addr string, api *admin.Client) *crowd {
	return &crowd{addr: addr, api: api, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}}
}

func (c *crowd) close() { c.http.CloseIdleConnections() }

// start has every client begin; they end with ctx.
func (c *crowd) start(ctx context.Context, wg *sync.WaitGroup) {
	clients := func(n int, act func(context.Context) error) {
		for range n {
			wg.Go(func() { c.repeat(ctx, act) })
		}
	}
	clients(4, func(ctx context.Context) error { return c.session(ctx, "/mcp", call("echo"), 30) })
	clients(2, func(ctx context.Context) error { return c.session(ctx, "/mcp", call("progress"), 10) })
	clients(2, c.stateless)
	clients(8, c.listen)
	clients(2, c.subscribe)
	var n atomic.Int64
	clients(2, func(ctx context.Context) error { return c.converse(ctx, int(n.Add(1))) })
}

// repeat does something again and again, until ctx ends.
func (c *crowd) repeat(ctx context.Context, act func(context.Context) error) {
	for ctx.Err() == nil {
		if err := act(ctx); err != nil && ctx.Err() == nil {
			c.failed.Add(1)
			text := err.Error()
			c.lastFailure.Store(&text)
		}
		pause(ctx, pace)
	}
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func call(tool string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + tool +
		`","arguments":{"text":"x","times":1,"steps":2},"_meta":{"progressToken":1}}}`
}

// request sends one, and returns the header of its answer when all has come.
func (c *crowd) request(ctx context.Context, method, path, body string, header http.Header) (http.Header, error) {
	resp, err := c.open(ctx, method, path, body, header)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
	case resp.StatusCode > 299:
		err = fmt.Errorf("%s is answered by %s: %.200s", method, resp.Status, b)
	case strings.Contains(string(b), `"error":`):
		err = fmt.Errorf("%.200s", b)
	default:
		c.answered.Add(1)
	}
	return resp.Header, err
}

func (c *crowd) open(ctx context.Context, method, path, body string, header http.Header) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, "http://"+c.addr+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header = header.Clone()
	r.Header.Set("Accept", "application/json, text/event-stream")
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/json")
	}
	return c.http.Do(r)
}

// initialize opens a session and returns the header of its requests.
func (c *crowd) initialize(ctx context.Context, path string) (http.Header, error) {
	answer, err := c.request(ctx, http.MethodPost, path, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"`+legacy+
		`","capabilities":{},"clientInfo":{"name":"soak","version":"1"}}}`, http.Header{})
	if err != nil {
		return nil, err
	}
	c.sessions.Add(1)
	h := http.Header{"Mcp-Protocol-Version": {legacy}, "Mcp-Session-Id": {answer.Get("Mcp-Session-Id")}}
	_, err = c.request(ctx, http.MethodPost, path, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, h)
	return h, err
}

// leave deletes a session, or just goes away.
func (c *crowd) leave(ctx context.Context, path string, h http.Header) error {
	if rand.IntN(2) == 0 {
		return nil
	}
	_, err := c.request(ctx, http.MethodDelete, path, "", h)
	return err
}

// session makes calls in a session.
func (c *crowd) session(ctx context.Context, path, body string, calls int) error {
	h, err := c.initialize(ctx, path)
	if err != nil {
		return err
	}
	var errs []error
	for range calls {
		_, err := c.request(ctx, http.MethodPost, path, body, h)
		errs = append(errs, err)
		pause(ctx, pace)
	}
	return errors.Join(append(errs, c.leave(ctx, path, h))...)
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modern +
	`","io.modelcontextprotocol/clientCapabilities":{},"io.modelcontextprotocol/clientInfo":{"name":"soak","version":"1"}}`

// stateless makes a call without a session.
func (c *crowd) stateless(ctx context.Context) error {
	_, err := c.request(ctx, http.MethodPost, "/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},`+meta+`}}`,
		http.Header{"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"tools/call"}, "Mcp-Name": {"echo"}})
	return err
}

// listen opens a session's stream for some seconds.
func (c *crowd) listen(ctx context.Context) error {
	h, err := c.initialize(ctx, "/mcp")
	if err != nil {
		return err
	}
	return errors.Join(c.read(ctx, http.MethodGet, "", h), c.leave(ctx, "/mcp", h))
}

// subscribe is the same in the revision without sessions.
func (c *crowd) subscribe(ctx context.Context) error {
	return c.read(ctx, http.MethodPost, `{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"toolsListChanged":true},`+meta+`}}`,
		http.Header{"Mcp-Protocol-Version": {modern}, "Mcp-Method": {"subscriptions/listen"}})
}

// read reads a stream for some seconds. It must not end by itself.
func (c *crowd) read(ctx context.Context, method, body string, h http.Header) error {
	whole := ctx
	ctx, cancel := context.WithTimeout(ctx, time.Second+rand.N(9*time.Second))
	defer cancel()
	resp, err := c.open(ctx, method, "/mcp", body, h)
	if err == nil {
		defer resp.Body.Close()
		c.streams.Add(1)
		_, err = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != http.StatusOK || err == nil {
			return fmt.Errorf("a stream ended: %s", resp.Status)
		}
	}
	if ctx.Err() != nil && whole.Err() == nil {
		return nil // that was its time
	}
	return err
}

// converse registers a conversation, some of which then call by its own URL, and
// removes the one that came long before it.
func (c *crowd) converse(ctx context.Context, n int) error {
	id := func(n int) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", n) }
	if _, err := c.api.Register(ctx, id(n), admin.Registration{}); err != nil {
		return err
	}
	c.conversations.Add(1)
	var errs []error
	if n%4 == 0 {
		errs = append(errs, c.session(ctx, "/c/"+id(n)+"/mcp", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 1))
	}
	if n > registered {
		errs = append(errs, c.api.Remove(ctx, id(n-registered)))
	}
	pause(ctx, 5*pace)
	return errors.Join(errs...)
}
