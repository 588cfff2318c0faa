//go:build openhands && unix

package openhands

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/install"
)

// world is what all tests share.
type world struct {
	kinds   map[string]kind
	model   *model
	with    []*agentServer // with the refresh action
	without []*agentServer
	hooked  place // where the agent servers with the action send their webhooks
}

// newWorld starts the agent servers.
func newWorld(t *testing.T) *world {
	t.Helper()
	python := install.Python(t, "3.12")
	openhands := install.Venv(t, "openhands", filepath.Join("python", "requirements.txt"), python)
	fastmcp4 := install.Venv(t, "sdks/fastmcp4", filepath.Join("..", "sdks", "python", "requirements-4.txt"), python)
	w := &world{
		kinds: map[string]kind{
			"sdk1":     {openhands, "sdk"},
			"fastmcp3": {openhands, "fastmcp"},
			"fastmcp4": {fastmcp4, "fastmcp"},
		},
		model:  startModel(t),
		hooked: reserve(t),
	}
	for _, name := range []string{"one", "two"} {
		w.with = append(w.with, launchAgentServer(t, openhands, name, true,
			"OH_WEBHOOKS_0_BASE_URL=http://"+w.hooked.register+"/webhooks/openhands/"+name,
			`OH_WEBHOOKS_0_HEADERS={"Authorization":"Bearer token-of-`+name+`"}`))
		w.without = append(w.without, launchAgentServer(t, openhands, name, false))
	}
	for _, a := range slices.Concat(w.with, w.without) {
		a.await(t)
	}
	return w
}

// way is how the sidecar comes to know of conversations.
type way int

const (
	discovery way = iota // it asks the agent servers
	headers              // requests name the agent server
	webhooks             // the agent server tells
)

// lines returns the part of the configuration that is about agent servers.
func (y way) lines(t *testing.T, agents []*agentServer, at place) []string {
	t.Helper()
	if y == headers {
		return []string{"agentServers:", "- {name: sandboxes, url: 'http://127.0.0.1:*'}"}
	}
	lines := []string{"agentServers:"}
	for _, a := range agents {
		lines = append(lines, "- name: "+a.name, "  url: http://"+a.addr, "  apiKeyFile: "+write(t, "key", a.key+"\n"))
		if y == webhooks {
			lines = append(lines, "  discover: false", "  registerTokenFile: "+write(t, "token", "token-of-"+a.name+"\n"))
		}
	}
	if y == webhooks {
		lines = append(lines, "registerListen: "+at.register)
	}
	return lines
}

// headers returns the headers of an entry in the MCP settings.
func (y way) headers() map[string]string {
	if y != headers {
		return nil
	}
	return map[string]string{
		"X-Sidecar-Agent-Server": "${SIDECAR_AGENT_SERVER}", "X-Session-API-Key": "${OH_SESSION_API_KEYS_0}",
	}
}
