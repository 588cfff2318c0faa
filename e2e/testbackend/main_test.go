package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// started is a backend that runs in the test's process.
type started struct {
	url     string // without a path
	journal string
	stop    func() // as SIGTERM does; waits for the end
}

func start(t *testing.T, args ...string) started {
	t.Helper()
	s := started{journal: filepath.Join(t.TempDir(), "journal")}
	ctx, cancel := context.WithCancel(context.Background())
	stdout, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		err := run(ctx, append([]string{"-journal", s.journal}, args...), strings.NewReader(""), out, io.Discard)
		_ = out.CloseWithError(err)
		done <- err
	}()
	stopped := false
	s.stop = func() {
		cancel()
		if stopped {
			return
		}
		stopped = true
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(s.stop)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("no address: %v", err)
	}
	s.url = "http://" + strings.TrimSpace(line)
	return s
}

func connect(t *testing.T, s started, options ...transport.StreamableHTTPCOption) *client.Client {
	t.Helper()
	trans := &http.Transport{}
	t.Cleanup(trans.CloseIdleConnections)
	c, err := client.NewStreamableHttpClient(s.url+"/mcp", append(options, transport.WithHTTPBasicClient(&http.Client{Transport: trans}))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Initialize(t.Context(), mcp.InitializeRequest{}); err != nil {
		t.Fatal(err)
	}
	return c
}

// listening makes a client open the GET stream of the older revisions.
func listening() transport.StreamableHTTPCOption {
	return transport.WithContinuousListening() //nolint:staticcheck // deprecated, and what the tests are about
}

func call(t *testing.T, c *client.Client, name string, args any) string {
	t.Helper()
	result, err := c.CallTool(t.Context(), mcp.CallToolRequest{Params: mcp.CallToolParams{Name: name, Arguments: args}})
	if err != nil {
		t.Fatalf("calling %s: %v", name, err)
	}
	return mcp.GetTextFromContent(result.Content[0])
}

func toolNames(t *testing.T, c *client.Client) []string {
	t.Helper()
	result, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, tool := range result.Tools {
		names = append(names, tool.Name)
	}
	return names
}

func (s started) entries(t *testing.T) []journal.Entry {
	t.Helper()
	all, err := journal.Read(s.journal)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func (s started) events(t *testing.T) []string {
	t.Helper()
	var events []string
	for _, e := range s.entries(t) {
		events = append(events, strings.TrimSuffix(e.Event+" "+e.Phase, " "))
	}
	return events
}

func post(t *testing.T, url, session, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	r.Header.Set("Content-Type", "application/json")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" && session == "" {
		return resp.StatusCode, id
	}
	return resp.StatusCode, string(answer)
}

func get(t *testing.T, url string) int {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Close = true
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}

func TestModes(t *testing.T) {
	for mode, wantSession := range map[string]bool{modeStateful: true, modeDefault: true, modeStateless: false} {
		t.Run(mode, func(t *testing.T) {
			s := start(t, "-mode", mode)
			c := connect(t, s, listening())
			if got := c.GetSessionId() != ""; got != wantSession {
				t.Errorf("has a session: %v, want %v", got, wantSession)
			}
			if got := call(t, c, "add", map[string]int{"a": 2, "b": 3}); got != "5" {
				t.Errorf("2+3=%s", got)
			}
			if events := s.events(t); !slices.Equal(events, []string{
				"initialize", "notifications/initialized", "tools/call begin", "tools/call end",
			}) {
				t.Errorf("journal has %q", events)
			}
		})
	}
	t.Run(modeModern, func(t *testing.T) {
		s := start(t, "-mode", modeModern)
		c := connect(t, s)
		if c.ProtocolVersion() != mcp.ProtocolVersion20260728 {
			t.Errorf("speaks %s", c.ProtocolVersion())
		}
		call(t, c, "echo", map[string]string{"text": "hi"})
		status, body := post(t, s.url+"/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}`)
		if status != 400 || !strings.Contains(body, "-32022") || !strings.Contains(body, mcp.ProtocolVersion20260728) {
			t.Errorf("initialize: %d %s", status, body)
		}
		if status := get(t, s.url+"/mcp"); status != 405 {
			t.Errorf("GET: %d", status)
		}
	})
	t.Run(modeSSE, func(t *testing.T) {
		s := start(t, "-mode", modeSSE)
		c, err := client.NewSSEMCPClient(s.url + "/sse")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Initialize(t.Context(), mcp.InitializeRequest{}); err != nil {
			t.Fatal(err)
		}
		call(t, c, "echo", map[string]string{"text": "hi"})
	})
}

func TestVersions(t *testing.T) {
	s := start(t)
	c := connect(t, s, listening())
	v1 := toolNames(t, c)
	if status, _ := post(t, s.url+"/admin/tools?version=v2", "", ""); status != 200 {
		t.Fatalf("offering v2: %d", status)
	}
	v2 := toolNames(t, c)
	if !slices.Contains(v1, "count") || slices.Contains(v2, "count") || !slices.Contains(v2, "multiply") {
		t.Errorf("v1 has %q, v2 has %q", v1, v2)
	}
	post(t, s.url+"/admin/tools?version=v1b", "", "")
	if diff := cmp.Diff(v1, toolNames(t, c)); diff != "" {
		t.Errorf("v1b (-v1 +v1b):\n%s", diff)
	}
	if status, _ := post(t, s.url+"/admin/tools?version=v9", "", ""); status != 400 {
		t.Errorf("offering v9: %d", status)
	}
}

func TestToolFileAndNotices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools.json")
	write := func(names ...string) {
		t.Helper()
		var tools []map[string]any
		for _, name := range names {
			tools = append(tools, map[string]any{"name": name, "annotations": map[string]any{"readOnlyHint": true}})
		}
		raw, _ := json.Marshal(tools)
		if err := os.WriteFile(file, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	s := start(t, "-tools", file, "-page-size", "1")
	c := connect(t, s, listening())
	notices := make(chan struct{}, 1000)
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == mcp.MethodNotificationToolsListChanged {
			notices <- struct{}{}
		}
	})
	write("one", "two")
	eventually(t, "a notice", func() bool {
		post(t, s.url+"/admin/tools", "", "")
		return len(notices) > 0
	})
	if got := toolNames(t, c); !slices.Equal(got, []string{"one", "two"}) {
		t.Errorf("tools are %q", got)
	}
	if got := call(t, c, "two", map[string]int{"n": 1}); got != `{"n":1}` {
		t.Errorf("tool of the file answered %s", got)
	}
}

func TestStrict(t *testing.T) {
	s := start(t, "-reject-until-initialized")
	const ping = `{"jsonrpc":"2.0","id":2,"method":"tools/list"}`
	_, session := post(t, s.url+"/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"n","version":"1"},"capabilities":{}}}`)
	if status, body := post(t, s.url+"/mcp", session, ping); status != 400 || !strings.Contains(body, "not initialized") {
		t.Errorf("too early: %d %s", status, body)
	}
	if status, _ := post(t, s.url+"/mcp", session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != 202 {
		t.Errorf("initialized: %d", status)
	}
	if status, body := post(t, s.url+"/mcp", session, ping); status != 200 {
		t.Errorf("then: %d %s", status, body)
	}
	want := []string{"initialize", "refused", "notifications/initialized", "tools/list"}
	if diff := cmp.Diff(want, s.events(t)); diff != "" {
		t.Errorf("journal (-want +got):\n%s", diff)
	}
	params, _ := json.Marshal(s.entries(t)[0].Params)
	if first := s.entries(t)[0]; first.Session != session || first.PID != os.Getpid() || !strings.Contains(string(params), `"name":"n"`) {
		t.Errorf("first entry is %+v", first)
	}
}

func TestUnknownSession(t *testing.T) {
	for spelling, want := range map[string]struct {
		status int
		body   string
	}{
		"404":      {404, "-32001"},
		"400":      {400, "-32000"},
		"401":      {401, "session"},
		"503":      {503, "session"},
		"200error": {200, `"id":7`},
		"":         {404, "session"},
	} {
		s := start(t, "-unknown-session", spelling)
		status, body := post(t, s.url+"/mcp", "mcp-session-12345678-1234-4234-8234-123456789abc", `{"jsonrpc":"2.0","id":7,"method":"ping"}`)
		if status != want.status || !strings.Contains(body, want.body) {
			t.Errorf("%q: %d %s", spelling, status, body)
		}
	}
}

func TestPhases(t *testing.T) {
	s := start(t, "-mode", "stateless", "-closed", "1ms", "-unavailable", "1s", "-unavailable-status", "404", "-empty", "1s")
	if status := get(t, s.url+"/health"); status != 200 {
		t.Errorf("health: %d", status)
	}
	var seen []string
	eventually(t, "the tools", func() bool {
		status, body := post(t, s.url+"/mcp", "", `{"jsonrpc":"2.0","id":7,"method":"tools/list"}`)
		state := "tools"
		if status == 404 {
			state = "unavailable"
		} else if strings.Contains(body, `"tools":[]`) {
			state = "empty"
		}
		if !slices.Contains(seen, state) {
			seen = append(seen, state)
		}
		return state == "tools"
	})
	if diff := cmp.Diff([]string{"unavailable", "empty", "tools"}, seen); diff != "" {
		t.Errorf("phases (-want +got):\n%s", diff)
	}
}

func (s started) has(t *testing.T, event string) bool {
	t.Helper()
	return slices.Contains(s.events(t), event)
}

func TestCallsFinishWhenStopped(t *testing.T) {
	s := start(t, "-slow", "300ms")
	c := connect(t, s, listening())
	done := make(chan error, 1)
	go func() {
		_, err := c.CallTool(t.Context(), mcp.CallToolRequest{Params: mcp.CallToolParams{Name: "transfer"}})
		done <- err
	}()
	eventually(t, "the call", func() bool { return s.has(t, "tools/call begin") })
	s.stop()
	if err := <-done; err != nil {
		t.Errorf("the call failed: %v", err)
	}
	if !s.has(t, "tools/call end") {
		t.Error("the call didn't end")
	}
}

func TestProgressAndQuestions(t *testing.T) {
	s := start(t)
	trans, err := transport.NewStreamableHTTP(s.url+"/mcp", listening())
	if err != nil {
		t.Fatal(err)
	}
	c := client.NewClient(trans, client.WithSamplingHandler(answers{}), client.WithElicitationHandler(answers{}))
	t.Cleanup(func() { _ = c.Close() })
	progress := make(chan struct{}, 100)
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == "notifications/progress" {
			progress <- struct{}{}
		}
	})
	if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Initialize(t.Context(), mcp.InitializeRequest{}); err != nil {
		t.Fatal(err)
	}
	result, err := c.CallTool(t.Context(), mcp.CallToolRequest{Params: mcp.CallToolParams{
		Name: "progress", Arguments: map[string]int{"steps": 4}, Meta: &mcp.Meta{ProgressToken: "p"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "four notices", func() bool { return len(progress) == 4 })
	if mcp.GetTextFromContent(result.Content[0]) != "done" {
		t.Errorf("result is %+v", result)
	}
	if got := call(t, c, "sample", nil); got != "an answer" {
		t.Errorf("sample: %s", got)
	}
	if got := call(t, c, "elicit", nil); got != "accept" {
		t.Errorf("elicit: %s", got)
	}
}

// answers answers what the server asks.
type answers struct{}

func (answers) CreateMessage(context.Context, mcp.CreateMessageRequest) (*mcp.CreateMessageResult, error) {
	return &mcp.CreateMessageResult{
		SamplingMessage: mcp.SamplingMessage{Role: mcp.RoleAssistant, Content: mcp.NewTextContent("an answer")},
		Model:           "none",
	}, nil
}

func (answers) Elicit(context.Context, mcp.ElicitationRequest) (*mcp.ElicitationResult, error) {
	return &mcp.ElicitationResult{ElicitationResponse: mcp.ElicitationResponse{
		Action: mcp.ElicitationResponseActionAccept, Content: map[string]any{"ok": true},
	}}, nil
}

func TestStdio(t *testing.T) {
	stdin, in := io.Pipe()
	out, stdout := io.Pipe()
	done := make(chan error, 1)
	go func() { done <- run(t.Context(), []string{"-mode", modeStdio}, stdin, stdout, io.Discard) }()
	lines := bufio.NewScanner(out)
	for _, request := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","clientInfo":{"name":"n","version":"1"},"capabilities":{}}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"over a pipe"}}}`,
	} {
		if _, err := io.WriteString(in, request+"\n"); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() {
			t.Fatalf("no answer: %v", lines.Err())
		}
	}
	if !strings.Contains(lines.Text(), "over a pipe") {
		t.Errorf("answer is %s", lines.Text())
	}
	_ = in.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestFlags(t *testing.T) {
	for _, args := range [][]string{{"-mode", "x"}, {"-version", "x"}, {"-unknown-session", "x"}, {"-nope"}, {"extra"}, {"-tools", "/nowhere"}} {
		if err := run(t.Context(), args, nil, io.Discard, io.Discard); err == nil {
			t.Errorf("%q: want an error", args)
		}
	}
}
