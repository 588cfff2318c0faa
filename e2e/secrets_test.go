//go:build unix

package e2e

import (
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestNoSecretIsTold plants secrets wherever there can be any, makes everything fail, and looks for them in all that the
// sidecar says: its log at debug level, metrics, every answer of its API, the status page, the feed of events, its own
// errors, and the commands. They all contain the word canary.
func TestNoSecretIsTold(t *testing.T) {
	long(t)
	t.Parallel()
	r := startSecretsRig(t)
	stop := r.listen("feed", r.admin("/v1/events"), r.bearer)
	r.clients()
	r.agentServers()
	r.backendFailures()
	r.registrations()
	r.adminRequests()
	r.reloads()
	r.everything()
	r.files()
	stop()
	if code := r.s.p.Terminate(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	r.add("log", r.s.p.Output())
	r.check(base64.StdEncoding.EncodeToString([]byte("canary-user:canary-password")))

	// What is stored of keys that came with requests is sealed.
	state, err := os.ReadFile(r.s.state)
	if err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{"canary-header-key", "canary-authorization", "canary-agent-key"} {
		if strings.Contains(string(state), secret) {
			t.Errorf("%s is in the state", secret)
		}
	}
}

// secretsRig is a sidecar between programs that can fail.
type secretsRig struct {
	*sweep
	s                     *sidecar
	register              string // address
	backend, keyed, other *failing
	configuration         string // path
	good                  string // its content
	bearer                map[string]string
	headers               string // path of the probe's headers
	key                   string // path of the agent server's key
}

const keyedID, otherID = "c0ffee00-0000-4000-8000-00000000000a", "c0ffee00-0000-4000-8000-00000000000b"

func startSecretsRig(t *testing.T) *secretsRig {
	t.Helper()
	r := &secretsRig{
		sweep: newSweep(t), s: newSidecar(t), register: proc.ReserveAddr(t), backend: startFailing(t, backendHandler()),
		bearer: map[string]string{"Authorization": "Bearer canary-admin-token"},
	}
	r.keyed = startFailing(t, agentHandler(keyedID, r.s.url()+"?canary-listen-query"))
	r.other = startFailing(t, agentHandler(otherID, r.s.url()))
	r.headers = writeFile(t, "headers", "Authorization: Bearer canary-probe-header\n")
	r.key = writeFile(t, "key", "canary-agent-key\n")
	r.good = strings.Join([]string{
		"upstream: " + r.backend.url + "/mcp?canary-upstream-query",
		"publicUrl: " + r.s.url(), "registerListen: " + r.register, "discoveryInterval: 500ms", "probeInterval: 200ms",
		"hold: 200ms", "holdCall: 200ms", "probeTimeout: 150ms",
		"probeHeadersFile: " + r.headers, "adminTokenFile: " + writeFile(t, "token", "canary-admin-token\n"),
		"sessionKeyFile: " + writeFile(t, "sessions", strings.Repeat("canary", 8)+"\n"),
		"agentServers:", "- name: keyed", "  url: " + r.keyed.url, "  apiKeyFile: " + r.key,
		"  registerTokenFile: " + writeFile(t, "register", "canary-register-token\n"),
		"- {name: others, url: 'http://127.0.0.1:*'}", "",
	}, "\n")
	r.configuration = writeFile(t, "config.yaml", r.good)
	r.s.args = []string{"--config", r.configuration}
	r.s.start()
	proc.Eventually(t, "the tools to settle", func() bool {
		status, body := fetch(t, "GET", r.admin("/v1/servers"), http.Header{"Authorization": {"Bearer canary-admin-token"}})
		return status == 200 && strings.Contains(body, `"settled"`)
	})
	return r
}

func (r *secretsRig) admin(path string) string { return "http://" + r.s.ctrl + path }

// converse sends a request as a conversation at the other agent server does, whose key comes by header.
func (r *secretsRig) converse(body, session string) (status int, answer, newSession string) {
	r.t.Helper()
	q, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.s.urlOf(otherID)+"?canary-query", strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	for name, value := range map[string]string{
		"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "Mcp-Protocol-Version": revision,
		"Authorization": "Bearer canary-authorization", "Cookie": "session=canary-cookie",
		"X-Sidecar-Agent-Server": r.other.url, "X-Session-API-Key": "canary-header-key",
	} {
		q.Header.Set(name, value)
	}
	if session != "" {
		q.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(q)
	if err != nil {
		return 0, "", ""
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body) // what the backend cut short is
	return resp.StatusCode, string(raw), resp.Header.Get("Mcp-Session-Id")
}

const (
	handshake = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"` + revision + `",` +
		`"capabilities":{},"clientInfo":{"name":"canary-client","version":"1"}}}`
	toolCall = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"x":"canary-argument"}}}`
)

// clients sends what the sidecar refuses, and what makes a conversation known.
func (r *secretsRig) clients() {
	r.t.Helper()
	status, _, session := r.converse(handshake, "")
	if status != 200 || session == "" {
		r.t.Fatalf("initialize: %d", status)
	}
	if status, answer, _ := r.converse(toolCall, session); status != 200 || !strings.Contains(answer, "canary-result") {
		r.t.Fatalf("tools/call: %d %s", status, answer)
	}
	mcp := func(more ...string) map[string]string {
		h := map[string]string{"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
		for i := 0; i < len(more); i += 2 {
			h[more[i]] = more[i+1]
		}
		return h
	}
	url := r.s.url() + "?canary-query"
	r.ask("broken JSON", "POST", url, `{"canary-broken":`, mcp())
	r.ask("no JSON", "POST", url, `canary-text`, mcp("Authorization", "Bearer canary-authorization"))
	r.ask("two ids", "POST", url, `{"jsonrpc":"2.0","id":"canary-1","id":"canary-2","method":"canary-method"}`, mcp())
	r.ask("forged session", "POST", url, toolCall, mcp("Mcp-Session-Id", "canary-session"))
	r.ask("changed session", "POST", url, toolCall, mcp("Mcp-Session-Id", session[:len(session)-3]+"AAA"))
	r.ask("impossible session", "POST", url, toolCall, mcp("Mcp-Session-Id", "canary session"))
	r.ask("foreign origin", "POST", url, toolCall, mcp("Origin", "https://canary.example"))
	r.ask("bad conversation", "POST", "http://"+r.s.listen+"/c/canary%20id/mcp", handshake, mcp())
	r.ask("unknown path", "POST", "http://"+r.s.listen+"/canary-path?canary-query", handshake, mcp("Cookie", "canary-cookie"))
	for where, named := range map[string]string{
		"agent server with a password": "http://canary-user:canary-password@169.254.169.254/?canary-query",
		"agent server that isn't one":  "canary-agent-server",
		"agent server with a query":    r.other.url + "/?canary-query",
	} {
		// These are for the log only: the request itself is fine.
		q := mcp("X-Sidecar-Agent-Server", named, "X-Session-API-Key", "canary-header-key")
		if status := r.ask(where, "POST", r.s.url(), handshake, q); status != 200 {
			r.t.Errorf("%s: %d", where, status)
		}
	}
	r.addSession(session)
}

// addSession lets a session id that the sidecar gave count as a secret.
func (r *secretsRig) addSession(session string) { r.t.Cleanup(func() { r.check(session) }) }

// agentServers lets the agent servers fail in every way while their conversations are to be refreshed.
func (r *secretsRig) agentServers() {
	r.t.Helper()
	both := map[string]*failing{keyedID: r.keyed, otherID: r.other}
	refresh := func(id string) {
		r.ask("refresh", "POST", r.admin("/v1/conversations/"+id+"/refresh"), "", r.bearer)
	}
	for id := range both {
		r.waitState(id, "current")
	}
	for _, bad := range failures() {
		for id, a := range both {
			a.fail.Store(&bad)
			asked := a.asked.Load()
			refresh(id)
			proc.Eventually(r.t, fmt.Sprintf("%s to answer badly (%s)", id, bad.name), func() bool { return a.asked.Load() > asked })
		}
		for id, a := range both {
			if !bad.success {
				r.waitState(id, "stale", "failed", "parked", "unsupported")
			}
			a.fail.Store(nil)
		}
		r.everything()
		if bad.name == http.StatusText(http.StatusNotFound) {
			break
		}
		for id := range both {
			refresh(id)
			r.waitState(id, "current")
		}
	}
}

// waitState waits until a conversation has one of these states.
func (r *secretsRig) waitState(id string, states ...string) {
	r.t.Helper()
	var body string
	defer func() {
		if r.t.Failed() {
			r.t.Log(body)
		}
	}()
	proc.Eventually(r.t, fmt.Sprintf("conversation %s to be %q", id, states), func() bool {
		_, body = fetch(r.t, "GET", r.admin("/v1/conversations/"+id), http.Header{"Authorization": {"Bearer canary-admin-token"}})
		return slices.ContainsFunc(states, func(s string) bool { return strings.Contains(body, `"state":"`+s+`"`) })
	})
}

// backendFailures lets the backend fail in every way while clients use it, and while the sidecar looks at it.
func (r *secretsRig) backendFailures() {
	r.t.Helper()
	for _, bad := range failures() {
		_, _, session := r.converse(handshake, "")
		r.backend.fail.Store(&bad)
		for _, body := range []string{toolCall, handshake, strings.ReplaceAll(toolCall, "tools/call", "tools/list")} {
			if _, answer, _ := r.converse(body, session); bad.own {
				r.add("answer of the sidecar", answer)
			}
		}
		r.ask("look", "POST", r.admin("/v1/servers/default/check"), "", r.bearer)
		r.everything()
		r.backend.fail.Store(nil)
		r.ask("look", "POST", r.admin("/v1/servers/default/check"), "", r.bearer)
	}
}
