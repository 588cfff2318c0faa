//go:build unix

package e2e

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// TestBadRequests sends what must not reach the backend.
func TestBadRequests(t *testing.T) {
	t.Parallel()
	b := startBackend(t)
	s := startSidecar(t, b)
	c := connect(t, s.url())
	const call = `{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"echo","arguments":{"text":"bad"}}}`
	big := func() io.Reader {
		return io.MultiReader(
			strings.NewReader(strings.TrimSuffix(call, `"bad"}}}`)+`"`),
			io.LimitReader(letters{}, 20<<20), strings.NewReader(`"}}}`),
		)
	}
	sized := func() io.Reader {
		all, _ := io.ReadAll(big())
		return bytes.NewReader(all)
	}
	forged := []byte(c.session)
	forged[len(forged)/2] ^= 1
	ours := func(*http.Request) {}
	as := func(session string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Mcp-Session-Id", session) }
	}
	for _, tt := range []struct {
		name   string
		body   func() io.Reader
		change func(*http.Request)
		status int
		code   int // of the JSON-RPC error; 0: it doesn't matter
	}{
		{"broken JSON", text(`{"jsonrpc":"2.0","id":7,"method":"tools/call"`), ours, 400, -32700},
		{"no JSON", text("hello"), ours, 400, -32700},
		{"nothing", text(""), ours, 400, 0},
		{"two methods", text(strings.Replace(call, `"id"`, `"method":"ping","id"`, 1)), ours, 400, -32600},
		{"two spellings of method", text(strings.Replace(call, `"id"`, `"Method":"ping","id"`, 1)), ours, 400, -32600},
		{"something after it", text(call + call), ours, 400, 0},
		{"20 MiB with a length", sized, ours, 413, 0},
		{"20 MiB without a length", big, ours, 413, 0},
		{"session id of somebody else", text(call), as("0123456789abcdef0123456789abcdef"), 404, -32001},
		{"forged session id", text(call), as(string(forged)), 404, -32001},
		{"long session id", text(call), as(strings.Repeat("x", 10<<10)), 400, 0},
		{"session id with spaces", text(call), as("a b"), 400, 0},
		{"foreign origin", text(call), func(r *http.Request) { r.Header.Set("Origin", "https://evil.example") }, 403, 0},
		{"no origin", text(call), func(r *http.Request) { r.Header.Set("Origin", "null") }, 403, 0},
		{"rebound host", text(call), func(r *http.Request) { r.Host = "evil.example" }, 403, 0},
		{"stripped session", text(call), func(r *http.Request) { r.Header.Set("Connection", "Mcp-Session-Id") }, 400, 0},
	} {
		r, err := c.request(t.Context(), http.MethodPost, tt.body())
		if err != nil {
			t.Fatal(err)
		}
		tt.change(r)
		a, err := c.do(r)
		if err != nil || a.status != tt.status {
			t.Errorf("%s: the answer is %d %.300s %v, want %d", tt.name, a.status, a.body, err, tt.status)
			continue
		}
		if tt.code != 0 && (a.message == nil || a.message.Error == nil || a.message.Error.Code != tt.code) {
			t.Errorf("%s: the answer is %s, want the error %d", tt.name, a.body, tt.code)
		}
		if len(a.body) > 1<<10 {
			t.Errorf("%s: the answer has %d bytes", tt.name, len(a.body))
		}
	}
	if n := b.ran("echo"); n != 0 {
		t.Errorf("%d bad calls ran", n)
	}
	for _, e := range b.entries(0) {
		if e.Event == journal.Refused {
			t.Errorf("the backend saw a %s with a bad session", e.Method)
		}
	}
	// The session, and the sidecar, are as they were.
	if _, err := c.call(t.Context(), "echo", map[string]string{"text": "good"}); err != nil {
		t.Error(err)
	}
}

// letters is an endless text.
type letters struct{}

func (letters) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}

func text(s string) func() io.Reader { return func() io.Reader { return strings.NewReader(s) } }

// TestBadAdminRequests asks the admin API for what it must refuse.
func TestBadAdminRequests(t *testing.T) {
	t.Parallel()
	b := startBackend(t)
	token := writeFile(t, "token", "secret-token\n")
	s := newSidecar(t, "--upstream", b.url(), "--admin-token-file", token, "--agent-server", "http://127.0.0.1:1")
	s.start()
	bearer := func(token string) http.Header {
		return http.Header{"Authorization": {"Bearer " + token}, "Content-Type": {"application/json"}}
	}
	for _, tt := range []struct {
		name, method, path, body string
		header                   http.Header
		status                   int
	}{
		{"no token", "GET", "/v1/servers", "", http.Header{}, 401},
		{"wrong token", "GET", "/v1/servers", "", bearer("other"), 401},
		{"right token", "GET", "/v1/servers", "", bearer("secret-token"), 200},
		{"foreign origin", "POST", "/v1/quiesce", "", http.Header{"Authorization": {"Bearer secret-token"}, "Origin": {"https://evil.example"}}, 403},
		{"agent server that isn't configured", "PUT", "/v1/conversations/one", `{"agentServer":"http://169.254.169.254/"}`, bearer("secret-token"), 422},
		{"server that isn't configured", "PUT", "/v1/conversations/one", `{"servers":["other"]}`, bearer("secret-token"), 422},
		{"id that is a path", "PUT", "/v1/conversations/..%2f..%2fapi", `{}`, bearer("secret-token"), 400},
		{"unknown member", "PUT", "/v1/conversations/one", `{"url":"http://127.0.0.1:1"}`, bearer("secret-token"), 400},
		{"unknown conversation", "GET", "/v1/conversations/one", "", bearer("secret-token"), 404},
		{"unknown server", "POST", "/v1/servers/other/check", "", bearer("secret-token"), 404},
		{"unknown path", "GET", "/v2", "", bearer("secret-token"), 404},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, "http://"+s.ctrl+tt.path, strings.NewReader(tt.body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = tt.header
		resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		raw, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != tt.status {
			t.Errorf("%s: the answer is %d %s, want %d", tt.name, resp.StatusCode, raw, tt.status)
		}
		if strings.Contains(string(raw), "secret-token") {
			t.Errorf("%s: the answer shows the token", tt.name)
		}
		var problem admin.Error
		kind := resp.Header.Get("Content-Type")
		if tt.status >= 400 && (kind != "application/problem+json" || json.Unmarshal(raw, &problem) != nil || problem.Status != tt.status) {
			t.Errorf("%s: the answer isn't a problem: %s %s", tt.name, kind, raw)
		}
	}
}

// runToEnd runs the sidecar to its end and returns the exit code and what it wrote.
func runToEnd(t *testing.T, args ...string) (int, string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), sidecarPath, args...)
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// TestBadConfiguration shows every mistake of a file with its place.
func TestBadConfiguration(t *testing.T) {
	t.Parallel()
	file := writeFile(t, "config.yaml", `listen: 127.0.0.1:0
hold: soon
servers:
  - name: tools
    path: /mcp
    upstream: ftp://127.0.0.1:9000/mcp
    retries: 3
`)
	for _, command := range []string{"run", "check"} {
		code, out := runToEnd(t, command, "--config", file)
		if code != 2 {
			t.Errorf("%s ends with exit code %d", command, code)
		}
		lines := strings.Split(strings.TrimSpace(out), "\n")
		var places []string
		for _, line := range lines {
			for n, key := range map[string]string{":2:": "hold", ":6:": "upstream", ":7:": "retries"} {
				if strings.Contains(line, file+n) && strings.Contains(line, key) {
					places = append(places, key)
				}
			}
		}
		if len(places) != 3 || command == "run" && len(lines) != 3 {
			t.Errorf("%s names %q of the three mistakes:\n%s", command, places, out)
		}
	}
}

// TestStateInUse starts a second sidecar with the state of a running one.
func TestStateInUse(t *testing.T) {
	long(t)
	t.Parallel()
	b := startBackend(t)
	s := startSidecar(t, b)
	other := newSidecar(t, "--upstream", b.url())
	other.state = s.state
	code, out := runToEnd(t, other.flags()...)
	if code != 1 || !strings.Contains(out, s.state) || !strings.Contains(out, "another") {
		t.Errorf("it ends with exit code %d:\n%s", code, out)
	}
	if _, err := connect(t, s.url()).call(t.Context(), "balance", nil); err != nil {
		t.Errorf("the first one: %v", err)
	}
}

// TestDamagedState starts with a state file that makes no sense, and leaves it to
// the operator what becomes of it.
func TestDamagedState(t *testing.T) {
	long(t)
	t.Parallel()
	b := startBackend(t)
	s := startSidecar(t, b)
	if code := s.p.Terminate(); code != 0 {
		t.Fatalf("the exit code is %d", code)
	}
	good, err := os.ReadFile(s.state)
	if err != nil {
		t.Fatal(err)
	}
	for name, damaged := range map[string]string{
		"empty":     "",
		"text":      strings.Repeat("not a database\n", 1000),
		"cut short": string(good[:len(good)/2]),
		"garbled":   strings.Repeat("\x00\xff", 4096) + string(good[8192:]),
	} {
		rewrite(t, s.state, damaged)
		code, out := runToEnd(t, s.flags()...)
		if code != 1 || !strings.Contains(out, s.state) || !strings.Contains(out, "move it away") || strings.Contains(out, "goroutine ") {
			t.Errorf("%s: it ends with exit code %d:\n%s", name, code, out)
		}
		if after, err := os.ReadFile(s.state); err != nil || string(after) != damaged {
			t.Errorf("%s: the file was changed (%v)", name, err)
		}
	}
	rewrite(t, s.state, string(good))
	s.start()
	s.waitSettled(1)
}
