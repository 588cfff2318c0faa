package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// TestStdioBackend replaces the process of a stdio backend by changing a watched
// file.
func TestStdioBackend(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tools")
	writeFile(t, file, "add old")
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, shared := range []bool{false, true} {
		writeFile(t, file, "add old")
		cfg := testConfig(t, "http://unused/mcp")
		s := cfg.Server("default")
		s.Upstream, s.Transport = nil, config.TransportStdio
		s.Command, s.Shared, s.Watch = []string{exe, "stdio-backend"}, shared, []string{file}
		s.Directory, s.Environment = filepath.Dir(file), map[string]string{stdioTools: filepath.Base(file)}
		a := newApp(cfg, appOptions{})
		if err := a.start(t.Context()); err != nil {
			t.Fatal(err)
		}
		c := adminClient(t, a)
		eventually(t, "generation 1", func() bool { return theServer(t, c).Generation == 1 })
		g := newAgent(t, a, "/mcp")
		if got := g.call("tools/call", `{"name":"old"}`); !strings.Contains(got, "from old") {
			t.Errorf("shared %t: call: %s", shared, got)
		}
		writeFile(t, file, "add new")
		eventually(t, "generation 2", func() bool { return theServer(t, c).Generation == 2 })
		if got := g.tools(); !strings.Contains(got, `"new"`) || strings.Contains(got, `"old"`) {
			t.Errorf("shared %t: tools: %s", shared, got)
		}
		if got := g.call("tools/call", `{"name":"new"}`); !strings.Contains(got, "from new") {
			t.Errorf("shared %t: call: %s", shared, got)
		}
		stopApp(t, a)
	}
}
