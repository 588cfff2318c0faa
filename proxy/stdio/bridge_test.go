package stdio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// fixture is a running bridge to test servers.
type fixture struct {
	*Bridge

	t     *testing.T
	log   *logBuffer
	swaps atomic.Int64
	stop  func() // ends Run, waits for it
}

type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.String()
}

// testConfig runs this test binary as a server of the mode.
func testConfig(t *testing.T, mode string) Config {
	t.Helper()

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	cfg := DefaultConfig()
	cfg.Command = []string{exe}
	// A process that was built to find races lingers for a second, but for this.
	cfg.Env = map[string]string{modeEnv: mode, "GORACE": "atexit_sleep_ms=0"}
	cfg.Watch = []string{}
	cfg.StopGrace = 5 * time.Second
	cfg.BackoffMin, cfg.BackoffMax = 10*time.Millisecond, 40*time.Millisecond

	return cfg
}

func start(t *testing.T, cfg Config) *fixture {
	t.Helper()

	f := &fixture{t: t, log: &logBuffer{}}

	b, err := New(cfg, Deps{
		Logger: slog.New(slog.NewTextHandler(io.MultiWriter(f.log, t.Output()), &slog.HandlerOptions{Level: slog.LevelDebug})),
		OnSwap: func() { f.swaps.Add(1) },
	})
	if err != nil {
		t.Fatal(err)
	}

	f.Bridge = b

	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)

	go func() { done <- b.Run(ctx) }()

	f.stop = sync.OnceFunc(func() {
		cancel()

		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(f.stop)

	eventually(t, "the bridge runs", func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()

		return b.running
	})

	return f
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()

	for deadline := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}

		time.Sleep(5 * time.Millisecond)
	}
}

func (f *fixture) do(ctx context.Context, method, session, body string, header ...string) (*http.Response, error) {
	f.t.Helper()

	req, err := http.NewRequestWithContext(ctx, method, "http://stdio.invalid/mcp", strings.NewReader(body))
	if err != nil {
		f.t.Fatal(err)
	}

	req.Header.Set("Accept", "application/json, text/event-stream")

	if session != "" {
		req.Header.Set(mcp.HeaderSessionID, session)
	}

	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	return f.RoundTrip(req)
}

// failing sends a message and returns the error.
func (f *fixture) failing(ctx context.Context, session, body string) error {
	f.t.Helper()

	resp, err := f.do(ctx, http.MethodPost, session, body)
	if err == nil {
		_ = resp.Body.Close()
	}

	return err
}

// status sends a request without a body and returns the status of the answer.
func (f *fixture) status(method, session string) int {
	f.t.Helper()

	resp, err := f.do(f.t.Context(), method, session, "")
	if err != nil {
		f.t.Fatal(err)
	}

	_ = resp.Body.Close()

	return resp.StatusCode
}

// post sends a message and returns the whole answer.
func (f *fixture) post(session, body string, header ...string) (status int, text string) {
	f.t.Helper()

	resp, err := f.do(f.t.Context(), http.MethodPost, session, body, header...)
	if err != nil {
		f.t.Fatalf("%s: %v", body, err)
	}

	b, err := io.ReadAll(resp.Body)
	if err != nil {
		f.t.Fatalf("%s: %v", body, err)
	}

	_ = resp.Body.Close()

	return resp.StatusCode, string(b)
}

const initParams = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}`

func initRequest(params string) string {
	return `{"jsonrpc":"2.0","id":"init","method":"initialize","params":` + params + `}`
}

// open begins a session and returns its id.
func (f *fixture) open() string {
	f.t.Helper()

	var session string

	eventually(f.t, "a session begins", func() bool {
		resp, err := f.do(f.t.Context(), http.MethodPost, "", initRequest(initParams))
		if errors.Is(err, ErrUnavailable) {
			return false
		}

		if err != nil {
			f.t.Fatal(err)
		}

		defer func() { _ = resp.Body.Close() }()

		session = resp.Header.Get(mcp.HeaderSessionID)
		if session == "" {
			b, _ := io.ReadAll(resp.Body)
			f.t.Fatalf("initialize: %d %s", resp.StatusCode, b)
		}

		return true
	})

	if status, _ := f.post(session, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != http.StatusAccepted {
		f.t.Fatalf("initialized: %d", status)
	}

	return session
}

func toolCall(id, tool string, args ...string) string {
	m := map[string]string{}
	for i := 0; i < len(args); i += 2 {
		m[args[i]] = args[i+1]
	}

	b, _ := json.Marshal(m)

	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":%q,"arguments":%s}}`, id, tool, b)
}

// text returns what a tool said.
func (f *fixture) text(session, tool string, args ...string) string {
	f.t.Helper()

	status, body := f.post(session, toolCall("1", tool, args...))

	var m struct {
		Result struct {
			Text string `json:"text"`
		} `json:"result"`
	}

	if err := json.Unmarshal([]byte(body), &m); err != nil || status != http.StatusOK {
		f.t.Fatalf("%s: %d %s", tool, status, body)
	}

	return m.Result.Text
}

func (f *fixture) pid(session string) int {
	f.t.Helper()

	pid, err := strconv.Atoi(f.text(session, "pid"))
	if err != nil {
		f.t.Fatal(err)
	}

	return pid
}

// listen opens the session's stream.
func (f *fixture) listen(session string) *events {
	f.t.Helper()

	resp, err := f.do(f.t.Context(), http.MethodGet, session, "")
	if err != nil {
		f.t.Fatal(err)
	}

	f.t.Cleanup(func() { _ = resp.Body.Close() })

	if resp.StatusCode != http.StatusOK {
		f.t.Fatalf("GET: %d", resp.StatusCode)
	}

	return &events{f.t, bufio.NewReader(resp.Body)}
}

// events reads an event stream.
type events struct {
	t *testing.T
	r *bufio.Reader
}

func (e *events) next() (string, error) {
	for {
		l, err := e.r.ReadString('\n')
		if err != nil {
			return "", err
		}

		if data, ok := strings.CutPrefix(l, "data: "); ok {
			return strings.TrimSuffix(data, "\n"), nil
		}
	}
}

func (e *events) want(text string) {
	e.t.Helper()

	if got, err := e.next(); err != nil || got != text {
		e.t.Errorf("event: got %q, %v; want %q", got, err, text)
	}
}

func (e *events) end(want error) {
	e.t.Helper()

	if got, err := e.next(); !errors.Is(err, want) {
		e.t.Errorf("end of stream: got %q, %v; want %v", got, err, want)
	}
}

// alive reports whether a process runs. One that isn't ours stays a zombie until
// whoever inherited it has a look.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))

	return syscall.Kill(pid, 0) == nil && (err != nil || !bytes.Contains(stat, []byte(") Z ")))
}

// childless fails the test if a child is left, be it a zombie.
func childless(t *testing.T) {
	t.Helper()

	if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); !errors.Is(err, syscall.ECHILD) {
		t.Errorf("child processes are left: %d, %v", pid, err)
	}
}

func TestNewValidates(t *testing.T) {
	t.Parallel()

	_, err := New(Config{BackoffMin: 2, BackoffMax: 1, Env: map[string]string{"A=B": ""}}, Deps{})
	if err == nil {
		t.Fatal("no error")
	}

	for _, want := range []string{"command", "environment", "start timeout", "stop grace", "drain", "backoff min", "max message", "max processes"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is not in %q", want, err)
		}
	}
}

func TestNotRunning(t *testing.T) {
	b, err := New(testConfig(t, "plain"), Deps{})
	if err != nil {
		t.Fatal(err)
	}

	f := &fixture{Bridge: b, t: t}
	if err := f.failing(t.Context(), "", initRequest(initParams)); !errors.Is(err, ErrUnavailable) || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}

	g := start(t, testConfig(t, "plain"))
	g.open()
	g.stop()

	if err := g.failing(t.Context(), "", initRequest(initParams)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}

	if err := g.Run(t.Context()); err == nil {
		t.Error("it ran twice")
	}

	childless(t)
}

func TestSession(t *testing.T) {
	f := start(t, testConfig(t, "plain"))

	status, body := f.post("", initRequest(initParams))
	if status != http.StatusOK || !strings.HasPrefix(body, `{"jsonrpc":"2.0","id":"init","result":{"protocolVersion":"2025-11-25"`) {
		t.Fatalf("initialize: %d %s", status, body)
	}

	one, two := f.open(), f.open()
	if a, b := f.pid(one), f.pid(two); a == b {
		t.Error("two sessions have one process")
	}

	for _, tt := range []struct {
		name, session, body string
		status              int
		answer              string
	}{
		{"ids are kept", one, "{\"jsonrpc\":\"2.0\",\n\"id\": 9007199254740993.0,\r\n\"method\":\"ping\"}", 200, `{"jsonrpc":"2.0","id":9007199254740993.0,"result":{}}`},
		{"odd id", one, `{"id":"\u0041\"","method":"ping","jsonrpc":"2.0"}`, 200, `{"jsonrpc":"2.0","id":"\u0041\"","result":{}}`},
		{"error", one, toolCall(`1`, "none"), 200, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no such tool"}}`},
		{"notification", one, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, 202, ``},
		{"batch", one, `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"}]`, 200, `[{"jsonrpc":"2.0","id":1,"result":{}}]`},
		{"unknown session", "nobody", `{"jsonrpc":"2.0","id":7,"method":"ping"}`, 404, `{"jsonrpc":"2.0","id":7,"error":{"code":-32001,"message":"Session not found"}}`},
		{"no session", "", `{"jsonrpc":"2.0","id":7,"method":"ping"}`, 400, `{"jsonrpc":"2.0","id":7,"error":{"code":-32600,"message":"the request needs the Mcp-Session-Id header"}}`},
		{"not JSON", one, `{`, 400, ``},
		{"not a message", one, `{"id":1}`, 400, ``},
		{"empty batch", one, `[]`, 400, ``},
		{"trailing", one, `{"jsonrpc":"2.0","id":1,"method":"ping"} x`, 400, ``},
	} {
		status, body := f.post(tt.session, tt.body)
		if status != tt.status || tt.answer != "" && body != tt.answer {
			t.Errorf("%s: got %d %s, want %d %s", tt.name, status, body, tt.status, tt.answer)
		}
	}

	for _, tt := range []struct {
		method, session string
		status          int
	}{
		{http.MethodGet, "nobody", 404},
		{http.MethodDelete, "nobody", 404},
		{http.MethodGet, "", 405},
		{http.MethodPut, one, 405},
		{http.MethodDelete, one, 200},
		{http.MethodDelete, one, 404},
		{http.MethodGet, one, 404},
	} {
		if got := f.status(tt.method, tt.session); got != tt.status {
			t.Errorf("%s %s: got %d, want %d", tt.method, tt.session, got, tt.status)
		}
	}

	f.pid(two)
}

func TestConcurrentRequests(t *testing.T) {
	f := start(t, testConfig(t, "plain"))

	for _, shared := range []bool{false, true} {
		f.cfg.Shared = shared
		sessions := []string{f.open(), f.open()}

		var wg sync.WaitGroup

		for i := range 40 {
			wg.Go(func() {
				mark := strconv.Itoa(i)
				if got := f.text(sessions[i%2], "echo", "mark", mark); !strings.Contains(got, `"mark":"`+mark+`"`) {
					t.Errorf("%s got %s", mark, got)
				}
			})
		}

		wg.Wait()
	}
}

func TestEnvironmentAndDirectory(t *testing.T) {
	t.Setenv("MCP_SIDECAR_SECRET", "secret")
	t.Setenv("STDIO_TEST_INHERITED", "inherited")

	cfg := testConfig(t, "plain")
	cfg.Dir = t.TempDir()
	cfg.Env["STDIO_TEST_ADDED"] = "added"
	f := start(t, cfg)
	s := f.open()

	for name, want := range map[string]string{"MCP_SIDECAR_SECRET": "", "STDIO_TEST_INHERITED": "inherited", "STDIO_TEST_ADDED": "added"} {
		if got := f.text(s, "env", "name", name); got != want {
			t.Errorf("%s: got %q, want %q", name, got, want)
		}
	}

	if got := f.text(s, "dir"); got != cfg.Dir {
		t.Errorf("got %q, want %q", got, cfg.Dir)
	}
}
