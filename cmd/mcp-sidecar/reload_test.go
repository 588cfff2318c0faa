package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

func TestReload(t *testing.T) {
	one, two := startBackend(t, "one"), startBackend(t, "two")
	file := filepath.Join(t.TempDir(), "f.yaml")
	base := `
listen: 127.0.0.1:0
opsListen: 127.0.0.1:0
adminListen: 127.0.0.1:0
state: state.db
drainDelay: 0
settle: 20ms
`
	first := base + "servers: [{name: one, path: /one, shrinkGrace: 20ms, upstream: " + one.url() + "}]\n"
	writeFile(t, file, first)
	load := func() (*config.Config, error) { return config.Load(file) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	s := startSupervised(t, cfg, appOptions{Load: load})
	c := adminClient(t, s.app)
	g := newAgent(t, s.app, "/one")
	g.tools()
	metric := func(name string) string {
		_, all := get(t, "http://"+s.addr("ops")+"/metrics")
		for line := range strings.Lines(all) {
			if v, ok := strings.CutPrefix(line, "mcp_sidecar_"+name+" "); ok {
				return strings.TrimSpace(v)
			}
		}
		return ""
	}

	// A second server, another log level, and a listener, which needs a restart.
	writeFile(t, file, strings.Replace(first, "}]", "}, {name: two, path: /two, upstream: "+two.url()+"}]\nlogLevel: warn\nmaxHeld: 7", 1)+"logFormat: text\n")
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := newAgent(t, s.app, "/two").tools(); !strings.Contains(got, `"two"`) {
		t.Errorf("tools of the new server: %s", got)
	}
	if got := g.tools(); !strings.Contains(got, `"one"`) {
		t.Errorf("the old server's session: %s", got)
	}
	if got := s.level.Level().String(); got != "WARN" {
		t.Errorf("log level %s", got)
	}
	if !strings.Contains(s.logs.String(), `"keys":["logFormat"]`) {
		t.Errorf("no word about the restart:\n%s", s.logs)
	}

	// Mistakes: all of them are told, and nothing changes.
	writeFile(t, file, "lisen: x\nservers: []\n")
	for range 2 {
		err = c.Reload(t.Context())
		if err == nil || !strings.Contains(err.Error(), "f.yaml:1:1: lisen: unknown key") {
			t.Errorf("reload of mistakes: %v", err)
		}
	}
	if n := strings.Count(s.logs.String(), "configuration rejected"); n != 1 {
		t.Errorf("the same mistakes are logged %d times", n)
	}
	if st, err := c.Status(t.Context()); err != nil || len(st.Servers) != 2 || !strings.Contains(st.ConfigError, "lisen") {
		t.Errorf("status %+v, %v", st, err)
	}
	if metric("config_last_reload_successful") != "0" || metric("config_reloads_failed_total") != "2" {
		t.Error("the metrics don't tell")
	}

	// The first server moves to another backend, the second goes; by signal.
	writeFile(t, file, base+"servers: [{name: one, path: /one, shrinkGrace: 20ms, upstream: "+two.url()+"}]\n")
	s.signals <- syscall.SIGHUP
	eventually(t, "reloaded", func() bool { return metric("config_last_reload_successful") == "1" })
	eventually(t, "generation 2", func() bool { return theServer(t, c).Generation == 2 })
	if got := g.tools(); !strings.Contains(got, `"two"`) {
		t.Errorf("tools at the new address: %s", got)
	}
	if _, body := get(t, "http://"+s.addr("ops")+"/metrics"); strings.Contains(body, `backend_up{server="two"}`) {
		t.Error("the metrics of the removed server are still there")
	}
	s.signals <- syscall.SIGTERM
	if err := s.wait(t); err != nil {
		t.Errorf("end: %v", err)
	}
}

func TestReloadWithoutLoad(t *testing.T) {
	a := testApp(t, testConfig(t, "http://127.0.0.1:1/mcp"))
	if err := a.Reload(t.Context()); err == nil {
		t.Error("a reload succeeds without anything to load")
	}
}

// TestTokenByReload protects a running admin API.
func TestTokenByReload(t *testing.T) {
	cfg := testConfig(t, "http://127.0.0.1:1/mcp")
	next := *cfg
	next.AdminTokenFile = filepath.Join(t.TempDir(), "token")
	writeFile(t, next.AdminTokenFile, "secret")
	a := newApp(cfg, appOptions{Load: func() (*config.Config, error) { return &next, nil }})
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer stopApp(t, a)
	c := adminClient(t, a)
	if err := c.Reload(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Servers(t.Context()); err == nil || !strings.Contains(err.Error(), "wants a token") {
		t.Errorf("without a token: %v", err)
	}
}
