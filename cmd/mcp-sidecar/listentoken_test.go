package main

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// knock asks the agents' listener with a token and returns the status.
func knock(t *testing.T, a *app, token string) int {
	t.Helper()
	body := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}`
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.addr("agents")+"/c/one/mcp", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// TestListenToken rotates the tokens of agents, breaks their file, and takes them away.
func TestListenToken(t *testing.T) {
	b := startBackend(t, "one")
	file := filepath.Join(t.TempDir(), "tokens")
	writeFile(t, file, "first\n")
	next := testConfig(t, b.url(), func(c *config.Config) { c.ListenTokenFile = file })
	var log logs
	a := newApp(next, appOptions{Logger: log.logger(), Load: func() (*config.Config, error) { return next, nil }})
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopApp(t, a) })
	for token, want := range map[string]int{"": 401, "other": 401, "firs": 401, "first": 200} {
		if got := knock(t, a, token); got != want {
			t.Errorf("token %q: %d, want %d", token, got, want)
		}
	}
	writeFile(t, file, "\nsecond\n first \n")
	eventually(t, "the second token is good", func() bool { return knock(t, a, "second") == 200 })
	if got := knock(t, a, "first"); got != 200 {
		t.Errorf("the first token next to it: %d", got)
	}
	writeFile(t, file, "second")
	eventually(t, "the first token is bad", func() bool { return knock(t, a, "first") == 401 })

	writeFile(t, file, " \n")
	eventually(t, "the empty file is seen", func() bool { knock(t, a, "second"); return strings.Contains(log.String(), "the last ones stay") })
	for token, want := range map[string]int{"": 401, "second": 200} {
		if got := knock(t, a, token); got != want {
			t.Errorf("empty file, token %q: %d, want %d", token, got, want)
		}
	}
	if strings.Contains(log.String(), "second") {
		t.Errorf("a token is in the log:\n%s", log.String())
	}

	// A file that can't be used doesn't come in force, and leaves the other one be.
	old := next
	other := *old
	other.ListenTokenFile, other.MaxHeld = filepath.Join(t.TempDir(), "none"), 7
	next = &other
	if err := a.Reload(t.Context()); err == nil {
		t.Error("a file that isn't there is taken")
	}
	if got := knock(t, a, ""); got != 401 {
		t.Errorf("after a rejected configuration: %d", got)
	}
	open := *old
	open.ListenTokenFile = ""
	next = &open
	if err := a.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := knock(t, a, ""); got != 200 {
		t.Errorf("without a file: %d", got)
	}
}

func TestReadTokens(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	for content, want := range map[string]int{"": 0, "\n \n": 0, "a b": 0, "a\x00": 0, "é": 0, "a": 1, "a\r\nb\n\n": 2} {
		writeFile(t, file, content)
		sums, err := readTokens(file)
		if len(sums) != want || (err == nil) != (want > 0) {
			t.Errorf("%q: %d tokens, %v", content, len(sums), err)
		}
		if err != nil && content != "" && strings.TrimSpace(content) != "" && strings.Contains(err.Error(), content) {
			t.Errorf("the error shows the token: %v", err)
		}
	}
}
