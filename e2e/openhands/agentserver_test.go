//go:build openhands && unix

package openhands

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// startPatience is how long an agent server may take to start: it has half a minute's work of imports to do.
const startPatience = 10 * time.Minute

// patience is how long a test waits for anything else of several busy programs.
const patience = 4 * proc.Patience

// agentServer is a process of the OpenHands agent server, and a client of it.
type agentServer struct {
	name, addr, key string
	dir             string
}

// launchAgentServer starts an agent server; await waits for it. It has the variables of env besides its own.
func launchAgentServer(t *testing.T, python, name string, action bool, env ...string) *agentServer {
	t.Helper()
	dir := t.TempDir()
	a := &agentServer{name: name, addr: proc.ReserveAddr(t), key: "key-of-" + name, dir: dir}
	_, port, _ := strings.Cut(a.addr, ":")
	args := []string{"-m", "openhands.agent_server", "--host", "127.0.0.1", "--port", port}
	if action {
		scripts, err := filepath.Abs("python")
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "--extra-python-path", scripts, "--import-modules", "refresh_action")
	}
	cmd := exec.Command(python, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"HOME="+dir, "XDG_CONFIG_HOME="+dir, "PYTHONDONTWRITEBYTECODE=", "OPENHANDS_SUPPRESS_BANNER=1",
		"OPENHANDS_AGENT_SERVER_CONFIG_PATH="+filepath.Join(dir, "none"),
		"OH_CONVERSATIONS_PATH="+filepath.Join(dir, "conversations"), "OH_WORKSPACE_PATH="+filepath.Join(dir, "workspace"),
		"OH_BASH_EVENTS_DIR="+filepath.Join(dir, "bash"), "OH_SECRET_KEY=secret", "OH_SESSION_API_KEYS_0="+a.key,
		"OH_ENABLE_VSCODE=0", "OH_ENABLE_VNC=0", "OH_PRELOAD_TOOLS=0", // nothing that the tests have no use for
		"LITELLM_LOCAL_MODEL_COST_MAP=True", // not from the network
		"SIDECAR_AGENT_SERVER=http://"+a.addr,
	)
	cmd.Env = append(cmd.Env, env...)
	proc.StartWith(t, cmd)
	return a
}

// await waits until the agent server serves.
func (a *agentServer) await(t *testing.T) {
	t.Helper()
	proc.Within(t, startPatience, "the agent server "+a.name, func() bool {
		resp, err := http.Get("http://" + a.addr + "/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// ask sends a request and returns the status and the body of the answer.
func (a *agentServer) ask(t *testing.T, method, path string, body any) (int, []byte) {
	t.Helper()
	raw, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(t.Context(), method, "http://"+a.addr+path, bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-Session-API-Key", a.key)
	r.Header.Set("Content-Type", "application/json")
	// The agent server closes idle connections after a few seconds, and a POST isn't sent again.
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	raw, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, raw
}

// must is ask for what has to succeed; the answer is decoded into the result, if there is one.
func (a *agentServer) must(t *testing.T, method, path string, body, result any) {
	t.Helper()
	status, raw := a.ask(t, method, path, body)
	if status/100 != 2 {
		t.Fatalf("%s %s at %s: %d %s", method, path, a.name, status, raw)
	}
	if result != nil {
		if err := json.Unmarshal(raw, result); err != nil {
			t.Fatalf("%s %s at %s: %v", method, path, a.name, err)
		}
	}
}

// mcpServer is an entry of a conversation's MCP configuration.
type mcpServer struct {
	Transport string            `json:"transport"`
	URL       string            `json:"url"`
	Headers   map[string]string `json:"headers,omitempty"`
}

// talker is a conversation at an agent server, and its model.
type talker struct {
	t     *testing.T
	id    string
	agent *agentServer
	model *talk
}

// converse creates a conversation, which connects its MCP servers when it gets its first message.
func (a *agentServer) converse(t *testing.T, m *model, id string, servers map[string]mcpServer) *talker {
	t.Helper()
	dir := filepath.Join(a.dir, "workspaces", id)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	status, raw := a.ask(t, http.MethodPost, "/api/conversations", map[string]any{
		"conversation_id": id, "workspace": map[string]any{"working_dir": dir}, "autotitle": false,
		"agent": map[string]any{
			"kind": "Agent", "tools": []any{}, "include_default_tools": []string{"FinishTool"}, "mcp_config": servers,
			"llm": map[string]any{
				"usage_id": "agent", "model": "openai/fake", "base_url": m.url, "api_key": id, "num_retries": 0,
			},
		},
	})
	if status != http.StatusCreated {
		t.Fatalf("creating a conversation at %s: %d %s", a.name, status, raw)
	}
	return &talker{t: t, id: id, agent: a, model: m.talk(id)}
}

func (c *talker) path(format string, args ...any) string {
	return "/api/conversations/" + c.id + fmt.Sprintf(format, args...)
}

// say sends the user's message, which makes the agent ask the model.
func (c *talker) say(text string) {
	c.t.Helper()
	c.agent.must(c.t, http.MethodPost, c.path("/events"), map[string]any{
		"role": "user", "content": []any{map[string]any{"type": "text", "text": text}}, "run": true,
	}, nil)
}

// waitFinished waits until the agent has nothing more to do.
func (c *talker) waitFinished() {
	c.t.Helper()
	var info struct {
		ID     string `json:"id"`
		Status string `json:"execution_status"`
	}
	proc.Within(c.t, patience, "conversation "+c.id+" to finish", func() bool {
		c.agent.must(c.t, http.MethodGet, c.path(""), nil, &info)
		if info.Status == "error" || info.Status == "stuck" || info.ID != c.id {
			_, events := c.agent.ask(c.t, http.MethodGet, c.path("/events/search?limit=100&sort_order=TIMESTAMP_DESC"), nil)
			c.t.Fatalf("conversation %s is %+v; its events: %.5000s", c.id, info, events)
		}
		return info.Status == "finished"
	})
}

// complete makes the agent ask the model once, and returns what it offers.
func (c *talker) complete() offer {
	c.t.Helper()
	n := len(c.model.requests(0))
	c.say("hello")
	c.waitFinished()
	offered := c.model.requests(n)
	if len(offered) != 1 {
		c.t.Fatalf("conversation %s asked the model %d times, want once", c.id, len(offered))
	}
	return offered[0]
}

// use makes the model call a tool once, and checks the result.
func (c *talker) use(call call) {
	c.t.Helper()
	c.model.plan(call, 1)
	c.say("use the tool")
	c.waitFinished()
}

// history returns all events of the conversation.
func (c *talker) history() []string {
	c.t.Helper()
	var all []string
	for page := ""; ; {
		var got struct {
			Items []json.RawMessage `json:"items"`
			Next  string            `json:"next_page_id"`
		}
		c.agent.must(c.t, http.MethodGet, c.path("/events/search?limit=100&page_id=%s", url.QueryEscape(page)), nil, &got)
		for _, item := range got.Items {
			all = append(all, string(item))
		}
		if page = got.Next; page == "" {
			return all
		}
	}
}
