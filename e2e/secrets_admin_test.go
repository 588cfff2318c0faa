//go:build unix

package e2e

import (
	"os/exec"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// registrations sends what agent servers may send, and what they may not.
func (r *secretsRig) registrations() {
	r.t.Helper()
	at := "http://" + r.register
	token := map[string]string{"Authorization": "Bearer canary-register-token", "X-Session-API-Key": "canary-header-key"}
	wrong := map[string]string{"Authorization": "Bearer canary-wrong-token", "X-Session-API-Key": "canary-header-key"}
	named := map[string]string{
		"Authorization": "Bearer canary-register-token", "X-Session-API-Key": "canary-header-key",
		"X-Sidecar-Agent-Server": "http://canary-user:canary-password@169.254.169.254/?canary-query",
	}
	info := `{"id":"c0ffee00-0000-4000-8000-00000000000c","execution_status":"idle","title":"canary-title","agent":{"kind":"Agent",` +
		`"llm":{"api_key":"canary-model-key"},"mcp_config":{"tools":{"url":"` + r.s.url() + `?canary-query","headers":{"X":"canary-value"}}}}}`
	for where, send := range map[string]struct {
		method, path, body string
		header             map[string]string
		status             int
	}{
		"webhook, wrong token":         {"POST", "/webhooks/openhands/keyed/conversations", info, wrong, 401},
		"webhook, no token":            {"POST", "/webhooks/openhands/keyed/conversations?canary-query", info, nil, 401},
		"webhook, another's path":      {"POST", "/webhooks/openhands/others/conversations", info, token, 403},
		"webhook, another's address":   {"POST", "/webhooks/openhands/keyed/conversations", info, named, 0},
		"webhook":                      {"POST", "/webhooks/openhands/keyed/conversations?canary-query", info, token, 204},
		"webhook, broken":              {"POST", "/webhooks/openhands/keyed/conversations", info[:len(info)-9], token, 400},
		"webhook of events":            {"POST", "/webhooks/openhands/keyed/events/" + keyedID, `[{"kind":"canary-event"}]`, token, 204},
		"webhook of broken events":     {"POST", "/webhooks/openhands/keyed/events/" + otherID, `[{"canary-broken`, token, 204},
		"webhook of a bad id":          {"POST", "/webhooks/openhands/keyed/events/canary%20id", `[]`, token, 400},
		"registration, wrong token":    {"PUT", "/v1/conversations/one", `{}`, wrong, 401},
		"registration, broken":         {"PUT", "/v1/conversations/one", `{"agentServer":"keyed","key":"canary-value"}`, token, 400},
		"registration, unknown server": {"PUT", "/v1/conversations/one", `{"servers":["other"]}`, token, 422},
		"registration elsewhere": {
			"PUT", "/v1/conversations/one",
			`{"agentServer":"http://canary-user:canary-password@169.254.169.254/?canary-query"}`, token, 0,
		},
		"removal of another's": {"DELETE", "/v1/conversations/" + otherID, "", token, 0},
	} {
		if status := r.ask(where, send.method, at+send.path, send.body, send.header); send.status != 0 && status != send.status {
			r.t.Errorf("%s: the answer is %d, want %d", where, status, send.status)
		}
	}
}

// adminRequests asks the API for what it must refuse.
func (r *secretsRig) adminRequests() {
	r.t.Helper()
	wrong := map[string]string{"Authorization": "Bearer canary-wrong-token"}
	r.ask("admin, wrong token", "GET", r.admin("/v1/servers?canary-query"), "", wrong)
	r.ask("admin, no token", "GET", r.admin("/v1/conversations"), "", nil)
	r.ask("admin, bad query", "GET", r.admin("/v1/conversations?state=none&cursor=x"), "", r.bearer)
	r.ask("admin, unknown path", "GET", r.admin("/canary-path?canary-query"), "", r.bearer)
	r.ask("admin, broken body", "PUT", r.admin("/v1/conversations/one"), `{"key":"canary-value"`, r.bearer)
	r.ask("admin, elsewhere", "PUT", r.admin("/v1/conversations/one"),
		`{"agentServer":"http://canary-user:canary-password@169.254.169.254/?canary-query"}`, r.bearer)
	r.ask("ops, unknown path", "GET", "http://"+r.s.ops+"/canary-path?canary-query", "", nil)
}

// reloads makes the configuration bad in many ways.
func (r *secretsRig) reloads() {
	r.t.Helper()
	for where, bad := range map[string]string{
		"no YAML":                   "upstream: [\"http://canary-user:canary-password@",
		"a key instead of its file": r.good + "apiKey: canary-inline-key\n",
		"a password in upstream":    "upstream: http://canary-user:canary-password@127.0.0.1:1/mcp?canary-query\n",
		"a bad address":             "upstream: \"http://canary-user:canary-password@[::bad/mcp?canary-query\"\n",
		"a password of an agent":    r.good + "- {name: third, url: 'http://canary-user:canary-password@127.0.0.1:1/?canary-query'}\n",
		"a bad address of an agent": r.good + "- {name: third, url: 'http://canary-user:canary-password@127.0.0.1:bad/?canary-query'}\n",
		"a password in publicUrl":   strings.Replace(r.good, "publicUrl: http://", "publicUrl: http://canary-user:canary-password@", 1),
	} {
		rewrite(r.t, r.configuration, bad)
		if status := r.ask("reload, "+where, "POST", r.admin("/v1/reload"), "", r.bearer); status < 400 {
			r.t.Errorf("a configuration with %s was accepted", where)
		}
		r.command("check", "--config", r.configuration)
		r.everything()
	}
	rewrite(r.t, r.configuration, r.good)
	if status := r.ask("reload", "POST", r.admin("/v1/reload"), "", r.bearer); status >= 400 {
		r.t.Errorf("the good configuration was refused: %d", status)
	}
}

// files spoils the files with secrets.
func (r *secretsRig) files() {
	r.t.Helper()
	rewrite(r.t, r.headers, "canary-header-without-value\n")
	rewrite(r.t, r.key, "canary-agent-key\x01\ncanary-second-line\n")
	r.ask("look", "POST", r.admin("/v1/servers/default/check"), "", r.bearer)
	r.ask("refresh", "POST", r.admin("/v1/conversations/"+keyedID+"/refresh"), "", r.bearer)
	proc.Eventually(r.t, "the bad key to be noticed", func() bool { return strings.Contains(r.s.p.Output(), "control characters") })
	r.command("check", "--live", "--config", r.configuration)
	r.everything()
}

// everything asks for all that the sidecar tells of itself.
func (r *secretsRig) everything() {
	r.t.Helper()
	for _, path := range []string{
		"/", "/v1/status", "/v1/servers", "/v1/servers/default", "/v1/conversations", "/v1/conversations/" + keyedID, "/v1/conversations/" + otherID,
	} {
		r.ask("GET "+path, "GET", r.admin(path), "", r.bearer)
	}
	for _, path := range []string{"/metrics", "/livez", "/readyz", "/startupz"} {
		r.ask("GET "+path, "GET", "http://"+r.s.ops+path, "", nil)
	}
}

// command runs the sidecar's command, and adds what it prints.
func (r *secretsRig) command(args ...string) {
	r.t.Helper()
	out, _ := exec.CommandContext(r.t.Context(), sidecarPath, args...).CombinedOutput() // that it fails is what this is for
	r.add(args[0], string(out))
}
