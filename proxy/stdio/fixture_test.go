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
