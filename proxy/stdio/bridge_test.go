package stdio

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

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
