package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// deadline is how long a test waits for what must come.
const deadline = 20 * time.Second

// testBackend is an MCP server that can be replaced by another process at the
// same address.
type testBackend struct {
	t    *testing.T
	addr string
	mu   sync.Mutex
	srv  *http.Server
}

func startBackend(t *testing.T, tools ...string) *testBackend {
	t.Helper()
	b := &testBackend{t: t, addr: "127.0.0.1:0"}
	b.start(tools...)
	t.Cleanup(b.stop)
	return b
}

// echo is a tool that tells its name. The one named slow takes a while.
func echo(name string) server.ToolHandlerFunc {
	return func(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if name == "slow" {
			select {
			case <-time.After(5 * time.Second):
			case <-ctx.Done():
			}
		}
		return mcp.NewToolResultText("from " + name), nil
	}
}

func (b *testBackend) url() string { return "http://" + b.addr + "/mcp" }

// start begins a process with these tools.
func (b *testBackend) start(tools ...string) {
	b.t.Helper()
	s := server.NewMCPServer("backend", "1", server.WithToolCapabilities(true))
	for _, name := range tools {
		s.AddTool(mcp.NewTool(name), echo(name))
	}
	var l net.Listener
	b.eventually("the backend's address is free", func() bool {
		var err error
		l, err = net.Listen("tcp", b.addr)
		return err == nil
	})
	b.addr = l.Addr().String()
	mux := http.NewServeMux()
	mux.Handle("/mcp", server.NewStreamableHTTPServer(s, server.WithStateful(true)))
	srv := &http.Server{Handler: mux}
	b.mu.Lock()
	b.srv = srv
	b.mu.Unlock()
	go func() { _ = srv.Serve(l) }()
}

// stop kills the process.
func (b *testBackend) stop() {
	b.mu.Lock()
	defer b.mu.Unlock()
	_ = b.srv.Close()
}

func (b *testBackend) eventually(what string, ok func() bool) {
	b.t.Helper()
	eventually(b.t, what, ok)
}

// eventually waits until something holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(deadline)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not in %s: %s", deadline, what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// testConfig is a configuration of ports that are free.
func testConfig(t *testing.T, upstream string, change ...func(*config.Config)) *config.Config {
	t.Helper()
	c, err := config.Load("", config.Override{Key: "upstream", Origin: "--upstream", Apply: func(c *config.Config) error {
		c.Listen, c.OpsListen, c.AdminListen = "127.0.0.1:0", "127.0.0.1:0", "127.0.0.1:0"
		c.State = filepath.Join(t.TempDir(), "state.db")
		c.ProbeInterval, c.ProbeTimeout, c.Settle, c.DrainDelay = 200*time.Millisecond, 150*time.Millisecond, 20*time.Millisecond, 0
		for _, f := range change {
			f(c)
		}
		return c.SetUpstream(upstream)
	}})
	if err != nil {
		t.Fatal(err)
	}
	c.Servers[0].ShrinkGrace = 20 * time.Millisecond
	return c
}

// testApp starts a sidecar and stops it at the end of the test.
func testApp(t *testing.T, cfg *config.Config) *app {
	t.Helper()
	a := newApp(cfg, appOptions{})
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopApp(t, a) })
	return a
}

func stopApp(t *testing.T, a *app) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := a.stop(ctx, 0); err != nil {
		t.Error(err)
	}
}

// logs is a log that a test can read while it is written.
type logs struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logs) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logs) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

func (l *logs) logger() *slog.Logger {
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// get returns status and body; 0 if nothing answers.
func get(t *testing.T, url string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

func adminClient(t *testing.T, a *app) *admin.Client {
	t.Helper()
	c, err := admin.NewClient(a.addr("admin"), "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// agent is a client of the sidecar that speaks plain JSON-RPC.
type agent struct {
	t       *testing.T
	url     string
	http    *http.Client
	session string
}

func newAgent(t *testing.T, a *app, path string) *agent {
	t.Helper()
	tr := &http.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	g := &agent{t: t, url: "http://" + a.addr("agents") + path, http: &http.Client{Transport: tr}}
	g.call("initialize", `{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"agent","version":"1"}}`)
	if g.session == "" {
		t.Fatal("no session id")
	}
	g.post(t.Context(), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return g
}

// call returns the result of a request.
func (g *agent) call(method, params string) string {
	g.t.Helper()
	body := g.post(g.t.Context(), `{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":`+params+`}`)
	var m struct {
		Result json.RawMessage `json:"result"`
		Error  json.RawMessage `json:"error"`
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil || m.Error != nil {
		g.t.Errorf("%s: %v %s", method, err, body)
	}
	return string(m.Result)
}

// post sends one message and returns the one that answers, also out of an event
// stream.
func (g *agent) post(ctx context.Context, body string) string {
	g.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, g.url, strings.NewReader(body))
	if err != nil {
		g.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	if g.session != "" {
		req.Header.Set("Mcp-Session-Id", g.session)
	}
	resp, err := g.http.Do(req)
	if err != nil {
		g.t.Errorf("sending %s: %v", body, err)
		return ""
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode >= 300 {
		g.t.Errorf("%s: %d %s %v", body, resp.StatusCode, b, err)
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		g.session = id
	}
	for line := range strings.Lines(string(b)) {
		if data, ok := strings.CutPrefix(line, "data: "); ok && strings.Contains(data, `"id"`) {
			return strings.TrimSpace(data)
		}
	}
	return string(b)
}

func (g *agent) tools() string { return g.call("tools/list", `{}`) }
