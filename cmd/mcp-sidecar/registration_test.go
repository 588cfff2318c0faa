package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
)

// startAgents starts an agent server that wants a key.
func startAgents(t *testing.T, key string) (s *agentserver.Server, url string) {
	t.Helper()
	s, err := agentserver.New(agentserver.DefaultConfig(), agentserver.Deps{Keys: func() ([]string, error) { return []string{key}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Log(err) // the sidecar may be gone already
		}
		srv.Close()
	})
	return s, srv.URL
}

// converse begins a conversation that uses the sidecar.
func converse(t *testing.T, s *agentserver.Server, a *app, path string, headers map[string]string) *agentserver.Conversation {
	t.Helper()
	c, _, err := s.Create(t.Context(), agentserver.CreateRequest{Servers: []agentserver.MCPServer{
		{Name: "tools", URL: "http://" + a.addr("agents") + path, Headers: headers},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// wantTools waits until a conversation has exactly these tools.
func wantTools(t *testing.T, c *agentserver.Conversation, want ...string) {
	t.Helper()
	eventually(t, fmt.Sprintf("the tools are %v", want), func() bool {
		var names []string
		for _, tool := range c.Tools() {
			names = append(names, tool.Name)
		}
		slices.Sort(names)
		return slices.Equal(names, want)
	})
}

// wantRegistered waits until a conversation is registered and current.
func wantRegistered(t *testing.T, a *app, c *agentserver.Conversation, source string) admin.Conversation {
	t.Helper()
	client := adminClient(t, a)
	var got admin.Conversation
	eventually(t, "the conversation is registered and current", func() bool {
		var err error
		got, err = client.Conversation(t.Context(), string(c.ID()))
		return err == nil && got.State == "current" && got.Source == source
	})
	return got
}

// generation waits until a generation has settled.
func generation(t *testing.T, a *app, want uint64) {
	t.Helper()
	eventually(t, "the generation has settled", func() bool { return a.backends.Servers()[0].Generation == want })
}

func discoverQuickly(c *config.Config) { c.DiscoveryInterval = 50 * time.Millisecond }

// TestDiscovered swaps the backend of a conversation that nobody registered.
func TestDiscovered(t *testing.T) {
	const key = "canary-key"
	b := startBackend(t, "add")
	agents, url := startAgents(t, key)
	keyFile := filepath.Join(t.TempDir(), "key")
	writeFile(t, keyFile, key)
	l := &logs{}
	a := newApp(testConfig(t, b.url(), discoverQuickly, func(c *config.Config) {
		c.AgentServer, c.AgentAPIKeyFile = []string{url}, keyFile
	}), appOptions{Logger: l.logger()})
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer stopApp(t, a)
	generation(t, a, 1)
	c := converse(t, agents, a, "/mcp?secret=canary-query", nil)
	wantTools(t, c, "add")
	got := wantRegistered(t, a, c, "discovery")
	if got.AgentServer != "default" || got.CreatedAt == nil || got.LastActive == nil || len(got.Servers) != 1 {
		t.Errorf("registered as %+v", got)
	}
	b.stop()
	b.start("add", "new")
	wantTools(t, c, "add", "new")
	generation(t, a, 2)
	if got := wantRegistered(t, a, c, "discovery"); got.Servers[0].Applied != 2 {
		t.Errorf("after a swap: %+v", got)
	}
	_, metrics := get(t, "http://"+a.addr("ops")+"/metrics")
	if !strings.Contains(metrics, `mcp_sidecar_discovery_runs_total{agent_server="default",result="success"}`) {
		t.Error("runs aren't counted")
	}
	if strings.Contains(l.String()+metrics, "canary") {
		t.Error("a secret is in the log or in the metrics")
	}
}

// TestSandbox has conversations tell where their agent server is and what key it
// wants, as in a configuration of MCP servers that is the same for all. Then the
// sidecar starts anew.
func TestSandbox(t *testing.T) {
	const key = "canary-key"
	for name, path := range map[string]string{"found by discovery": "/mcp", "named by its URL": "/c/7c9e6679-7425-40de-944b-e07fc1f90ae7/mcp"} {
		t.Run(name, func(t *testing.T) {
			b := startBackend(t, "add")
			agents, url := startAgents(t, key)
			keys := filepath.Join(t.TempDir(), "keys")
			writeFile(t, keys, fmt.Sprintf("%x\n", proxy.NewKey()))
			l := &logs{}
			cfg := testConfig(t, b.url(), discoverQuickly, func(c *config.Config) {
				c.SessionKeyFile = keys
				c.AgentServers = []config.AgentServer{{Name: "boxes", URL: "http://127.0.0.1:*", Discover: true, Concurrency: 4, IdleAfter: time.Hour}}
			})
			a := newApp(cfg, appOptions{Logger: l.logger()})
			if err := a.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			generation(t, a, 1)
			c, _, err := agents.Create(t.Context(), agentserver.CreateRequest{
				ID: "7c9e6679-7425-40de-944b-e07fc1f90ae7",
				Servers: []agentserver.MCPServer{{
					Name: "tools", URL: "http://" + a.addr("agents") + path,
					Headers: map[string]string{"X-Sidecar-Agent-Server": url, "X-Session-API-Key": key},
				}},
			})
			if err == nil {
				err = c.Start(t.Context())
			}
			if err != nil {
				t.Fatal(err)
			}
			source := "discovery"
			if path != "/mcp" {
				source = "url"
			}
			got := wantRegistered(t, a, c, source)
			if got.AgentServer != "boxes" || got.AgentURL != url {
				t.Errorf("registered as %+v", got)
			}
			b.stop()
			b.start("add", "new")
			wantTools(t, c, "add", "new")
			generation(t, a, 2)
			wantRegistered(t, a, c, source)
			listen := a.addr("agents")
			stopApp(t, a)

			// What is stored suffices to reach it again, before it says a word.
			cfg.Listen = listen
			b.stop()
			b.start("add", "new", "newer")
			a = newApp(cfg, appOptions{Logger: l.logger()})
			if err := a.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			defer stopApp(t, a)
			generation(t, a, 3)
			wantTools(t, c, "add", "new", "newer")
			wantRegistered(t, a, c, source)

			_, metrics := get(t, "http://"+a.addr("ops")+"/metrics")
			if !strings.Contains(metrics, `mcp_sidecar_refreshes_total{agent_server="boxes",result="success"}`) || strings.Contains(metrics, url) {
				t.Error("refreshes aren't counted under the configured name")
			}
			stored, err := os.ReadFile(cfg.State)
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(l.String()+metrics+string(stored), "canary") {
				t.Error("a secret is in the log, in the metrics or in the store")
			}
		})
	}
}

// TestWebhook registers a conversation and its end through the agent server's own
// webhook.
func TestWebhook(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	writeFile(t, token, "canary-token")
	l := &logs{}
	a := newApp(testConfig(t, "http://127.0.0.1:1/mcp", func(c *config.Config) {
		c.RegisterListen, c.PublicURL = "127.0.0.1:0", []string{"https://tools.example.com"}
		c.AgentServers = []config.AgentServer{
			{Name: "default", URL: "http://127.0.0.1:1", RegisterTokenFile: token, Concurrency: 4},
			{Name: "boxes", URL: "https://*.example.com", Concurrency: 4},
		}
	}), appOptions{Logger: l.logger()})
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer stopApp(t, a)
	hook := func(path, body string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+a.addr("register")+"/webhooks/openhands/default/"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer canary-token")
		req.Header.Set("X-Session-API-Key", "canary-key")
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	body := func(status string) string {
		b, err := json.Marshal(map[string]any{"id": "x", "execution_status": status, "agent": map[string]any{
			"mcp_config": map[string]any{"tools": map[string]any{"url": "https://tools.example.com/mcp?key=canary-query"}},
		}})
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if code := hook("conversations", body("idle")); code != http.StatusNoContent {
		t.Errorf("created: %d", code)
	}
	c := adminClient(t, a)
	got, err := c.Conversation(t.Context(), "x")
	if err != nil || got.Source != "webhook" || got.AgentServer != "default" {
		t.Errorf("registered as %+v, %v", got, err)
	}
	if code := hook("events/x", `[{"kind":"ConversationStateUpdateEvent","key":"execution_status","value":"running"}]`); code != http.StatusNoContent {
		t.Errorf("events: %d", code)
	}
	if code := hook("conversations", body("deleting")); code != http.StatusNoContent {
		t.Errorf("deleted: %d", code)
	}
	if _, err := c.Conversation(t.Context(), "x"); err == nil {
		t.Error("it is still registered")
	}
	_, metrics := get(t, "http://"+a.addr("ops")+"/metrics")
	if strings.Contains(l.String()+metrics, "canary") {
		t.Error("a secret is in the log or in the metrics")
	}
	for _, name := range []string{"default", "boxes"} {
		for _, series := range []string{"refreshes_total", "discovery_runs_total"} {
			if !strings.Contains(metrics, `mcp_sidecar_`+series+`{agent_server="`+name+`"`) {
				t.Errorf("no %s of %s from the start", series, name)
			}
		}
	}
}

// TestRegisterByURL registers a conversation at one of the agent servers that a
// pattern allows, and at one that it doesn't.
func TestRegisterByURL(t *testing.T) {
	a := testApp(t, testConfig(t, "http://127.0.0.1:1/mcp", func(c *config.Config) {
		c.AgentServers = []config.AgentServer{{Name: "boxes", URL: "http://127.0.0.1:*", Concurrency: 4}}
		c.Conversations = []config.Conversation{{ID: "configured", AgentServer: "http://127.0.0.1:2"}}
	}))
	c := adminClient(t, a)
	got, err := c.Conversation(t.Context(), "configured")
	if err != nil || got.AgentServer != "boxes" || got.AgentURL != "http://127.0.0.1:2" {
		t.Errorf("configured: %+v %v", got, err)
	}
	got, err = c.Register(t.Context(), "x", admin.Registration{AgentServer: "http://127.0.0.1:1"})
	if err != nil || got.AgentServer != "boxes" || got.AgentURL != "http://127.0.0.1:1" {
		t.Errorf("%+v %v", got, err)
	}
	for _, s := range []string{"boxes", "http://10.0.0.1:1", "http://" + a.addr("admin"), "http://" + a.addr("agents"), "http://0x7f.1:1"} {
		if got, err := c.Register(t.Context(), "y", admin.Registration{AgentServer: s}); err == nil {
			t.Errorf("%s: %+v", s, got)
		}
	}
}

func TestPublicURLs(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg   config.Config
		bound string
		want  []string
	}{
		"given":       {config.Config{PublicURL: []string{"https://a/x", "http://b:1"}}, "127.0.0.1:1", []string{"https://a/x", "http://b:1"}},
		"loopback":    {config.Config{}, "127.0.0.1:8080", []string{"http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:8080"}},
		"everywhere":  {config.Config{TLSCertFile: "c"}, "[::]:8443", []string{"https://127.0.0.1:8443", "https://localhost:8443", "https://[::1]:8443"}},
		"one address": {config.Config{}, "10.0.0.1:8080", []string{"http://10.0.0.1:8080"}},
		"a name":      {config.Config{}, "localhost:8080", []string{"http://localhost:8080"}},
	} {
		var got []string
		for _, u := range publicURLs(&tt.cfg, tt.bound) {
			got = append(got, u.String())
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

var _ proxy.Conversations = conversations{}

var _ admin.Conversations = conversations{}
