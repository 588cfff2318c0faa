package main

import (
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func writeFile(t *testing.T, file, content string) {
	t.Helper()
	if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func theServer(t *testing.T, c *admin.Client) admin.Server {
	t.Helper()
	all, err := c.Servers(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("servers: %+v, %v", all, err)
	}
	return all[0]
}

// TestSwap shows one swap through everything that is wired together: the agent's
// session survives, the generation moves on, and the feed tells it.
func TestSwap(t *testing.T) {
	b := startBackend(t, "add", "old")
	a := testApp(t, testConfig(t, b.url()))
	c := adminClient(t, a)
	eventually(t, "generation 1", func() bool { return theServer(t, c).Generation == 1 })
	g := newAgent(t, a, "/mcp")
	if got := g.tools(); !strings.Contains(got, `"old"`) {
		t.Errorf("tools: %s", got)
	}
	feed := readFeed(t, a)

	b.stop()
	b.start("add", "new")
	if got := g.call("tools/call", `{"name":"add"}`); !strings.Contains(got, "from add") {
		t.Errorf("call over the swap: %s", got)
	}
	if got := g.tools(); !strings.Contains(got, `"new"`) || strings.Contains(got, `"old"`) {
		t.Errorf("tools after the swap: %s", got)
	}
	eventually(t, "generation 2", func() bool { return theServer(t, c).Generation == 2 })
	s := theServer(t, c)
	if s.State != "settled" || s.Swaps != 1 || s.LastSwap == nil || s.LastSwap.Cause == "" || s.Sessions != 1 || !strings.HasPrefix(s.Hash, "sha256:") {
		t.Errorf("server: %+v", s)
	}
	if ch := s.LastChange; ch == nil || strings.Join(ch.Added, ",") != "new" || strings.Join(ch.Removed, ",") != "old" || !ch.Breaking {
		t.Errorf("last change: %+v", s.LastChange)
	}
	if s.ServerInfo == nil || s.ServerInfo.Name != "backend" {
		t.Errorf("server info: %+v", s.ServerInfo)
	}
	for _, want := range []string{`"type":"swap"`, `"generation":2`} {
		eventually(t, want+" in the feed", func() bool { return strings.Contains(feed.String(), want) })
	}
	_, metrics := get(t, "http://"+a.addr("ops")+"/metrics")
	for _, want := range []string{
		`mcp_sidecar_schema_generation{server="default"} 2`,
		`mcp_sidecar_quiescing 0`,
		`mcp_sidecar_config_last_reload_successful 1`,
		`mcp_sidecar_config_reloads_failed_total 0`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("metrics lack %s", want)
		}
	}
}

// TestRestart shows that a successor with the same state serves the sessions on
// and adopts the generation.
func TestRestart(t *testing.T) {
	b := startBackend(t, "add")
	cfg := testConfig(t, b.url())
	first := newApp(cfg, appOptions{})
	if err := first.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	g := newAgent(t, first, "/mcp")
	g.tools()
	eventually(t, "generation 1", func() bool { return theServer(t, adminClient(t, first)).Generation == 1 })
	stopApp(t, first)

	second := testApp(t, cfg)
	g.url = "http://" + second.addr("agents") + "/mcp"
	if got := g.tools(); !strings.Contains(got, `"add"`) {
		t.Errorf("tools: %s", got)
	}
	c := adminClient(t, second)
	eventually(t, "settled", func() bool { return theServer(t, c).State == "settled" })
	if s := theServer(t, c); s.Generation != 1 {
		t.Errorf("generation %d after a restart", s.Generation)
	}
}

// TestCheckServer asks for a look where probing by itself is slow.
func TestCheckServer(t *testing.T) {
	b := startBackend(t, "add")
	a := testApp(t, testConfig(t, b.url()))
	c := adminClient(t, a)
	s, err := c.Check(t.Context(), "default")
	if err != nil || s.State != "settled" || len(s.Tools) != 1 || s.Tools[0].Name != "add" {
		t.Errorf("%+v, %v", s, err)
	}
	if _, err := c.Check(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "no such server") {
		t.Errorf("unknown server: %v", err)
	}
}

// TestConfiguredConversations come and go with the configuration.
func TestConfiguredConversations(t *testing.T) {
	cfg := testConfig(t, "http://127.0.0.1:1/mcp", func(c *config.Config) {
		c.AgentServer = []string{"http://127.0.0.1:1"}
		c.Conversations = []config.Conversation{{ID: "one"}, {ID: "two"}}
	})
	a := testApp(t, cfg)
	c := adminClient(t, a)
	if _, err := c.Register(t.Context(), "three", admin.Registration{}); err != nil {
		t.Fatal(err)
	}
	ids := func() string {
		page, err := c.Conversations(t.Context(), conversation.Query{})
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, v := range page.Conversations {
			out = append(out, v.ID+":"+v.Source)
		}
		return strings.Join(out, " ")
	}
	if got := ids(); got != "one:config three:admin two:config" {
		t.Errorf("conversations %s", got)
	}
	next := *cfg
	next.Conversations = cfg.Conversations[1:]
	if err := a.registerConfigured(t.Context(), &next); err != nil {
		t.Fatal(err)
	}
	if got := ids(); got != "three:admin two:config" {
		t.Errorf("conversations %s", got)
	}
}

// readFeed reads the event feed of a sidecar into a log.
func readFeed(t *testing.T, a *app) *logs {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.addr("admin")+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req) //nolint:bodyclose // closed by the cleanup
	if err != nil {
		t.Fatal(err)
	}
	l := &logs{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(l, resp.Body)
	}()
	t.Cleanup(func() {
		resp.Body.Close()
		<-done
	})
	eventually(t, "the feed begins", func() bool { return l.String() != "" })
	return l
}
