package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// result is what a command came to.
type result struct {
	code           int
	stdout, stderr string
}

func runCLI(t *testing.T, env map[string]string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	code := execute(t.Context(), args, console{stdout: &stdout, stderr: &stderr, getenv: func(k string) string { return env[k] }})
	return result{code, stdout.String(), stderr.String()}
}

func TestUsageErrors(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.yaml")
	writeFile(t, bad, "listen: 1\nfoo: 2\n")
	for name, tt := range map[string]struct {
		env  map[string]string
		args []string
		want string
	}{
		"nothing to run":      {nil, []string{"run"}, "no server: give --upstream URL (or --stdio -- COMMAND), or list servers in the configuration file"},
		"unknown command":     {nil, []string{"start"}, "unexpected argument start (see mcp-sidecar --help)"},
		"unknown flag":        {nil, []string{"run", "--upstreams", "x"}, "unknown flag --upstreams, did you mean \"--upstream\"? (see mcp-sidecar --help)"},
		"half a command":      {nil, []string{"conversations"}, `expected one of "list", "add", "remove", "refresh" (see mcp-sidecar --help)`},
		"stray argument":      {nil, []string{"run", "--upstream", "http://h/mcp", "x"}, `unexpected argument "x": a command is for --stdio -- COMMAND`},
		"stdio without":       {nil, []string{"run", "--stdio"}, "--stdio needs the backend's command after --, as in: --stdio -- python server.py"},
		"two backends":        {nil, []string{"run", "--upstream", "http://h/mcp", "--stdio", "--", "x"}, "--upstream and --stdio are both given: a backend has a URL or a command"},
		"bad duration":        {nil, []string{"run", "--upstream", "http://h/mcp", "--hold", "3"}, `--hold: want a duration such as "25s" or "1m30s", got "3"`},
		"bad variable":        {map[string]string{"MCP_SIDECAR_HOLD": "x"}, []string{"run", "--upstream", "http://h/mcp"}, `MCP_SIDECAR_HOLD: want a duration such as "25s" or "1m30s", got "x"`},
		"admin for everybody": {nil, []string{"run", "--upstream", "http://h/mcp", "--admin-listen", ":1"}, "--admin-listen: :1 can be reached from other machines: set --admin-token-file, or listen on 127.0.0.1"},
		"no such file":        {nil, []string{"run", "--config", dir + "/none"}, dir + "/none: there is no such configuration file: check --config"},
		"a file of mistakes":  {nil, []string{"run", "--config", bad, "--upstream", "http://h/mcp"}, bad + ":1:9: listen: want a text, got a number: put it in quotes\nmcp-sidecar: " + bad + ":2:1: foo: unknown key"},
		"no admin URL":        {nil, []string{"status", "--admin", "ftp://x"}, "--admin: want the URL of the admin API, such as http://127.0.0.1:9091"},
		"no MCP URL":          {nil, []string{"tools", "127.0.0.1:9000"}, "want the URL of an MCP server, such as http://127.0.0.1:9000/mcp"},
	} {
		t.Run(name, func(t *testing.T) {
			want := result{exitUsage, "", "mcp-sidecar: " + tt.want + "\n"}
			if diff := cmp.Diff(want, runCLI(t, tt.env, tt.args...), cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	for _, args := range [][]string{nil, {"--help"}, {"-h"}} {
		r := runCLI(t, nil, args...)
		if r.code != exitOK || r.stderr != "" || !strings.HasPrefix(r.stdout, "Usage: mcp-sidecar <command> [flags]\n") {
			t.Errorf("%q: %+v", args, r)
		}
		if strings.Contains(r.stdout, "demo-backend") {
			t.Error("a hidden command is shown")
		}
	}
	r := runCLI(t, nil, "run", "--help")
	for _, want := range []string{"--upstream=URL", "[$MCP_SIDECAR_UPSTREAM]", "(default 25s)"} {
		if r.code != exitOK || !strings.Contains(strings.Join(strings.Fields(r.stdout), " "), want) {
			t.Errorf("help of run lacks %q", want)
		}
	}
}

// loadConfig is what run would run.
func loadConfig(t *testing.T, env map[string]string, args ...string) *config.Config {
	t.Helper()
	p, envs, err := newParser(console{getenv: func(k string) string { return env[k] }})
	if err != nil {
		t.Fatal(err)
	}
	kctx, err := p.Parse(append([]string{"run"}, args...))
	if err != nil {
		t.Fatal(err)
	}
	all, ok := reflect.TypeAssert[*cli](kctx.Model.Target.Addr())
	if !ok {
		t.Fatal("the target isn't the command line")
	}
	c, err := all.Run.load(origins{kctx, envs})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPrecedence(t *testing.T) {
	file := filepath.Join(t.TempDir(), "f.yaml")
	writeFile(t, file, "hold: 3s\nagentServer: http://file\n")
	env := map[string]string{"MCP_SIDECAR_HOLD": "2s", "MCP_SIDECAR_AGENT_SERVER": "http://env,b=http://env2"}
	flag := []string{"--hold", "1s", "--agent-server", "http://flag"}
	inFile := []string{"--config", file}
	for name, tt := range map[string]struct {
		env    map[string]string
		args   []string
		hold   time.Duration
		agents []string
	}{
		"default":           {nil, nil, 25 * time.Second, nil},
		"file over default": {nil, inFile, 3 * time.Second, []string{"default=http://file"}},
		"env over default":  {env, nil, 2 * time.Second, []string{"default=http://env", "b=http://env2"}},
		"env over file":     {env, inFile, 2 * time.Second, []string{"default=http://env", "b=http://env2"}},
		"flag over default": {nil, flag, time.Second, []string{"default=http://flag"}},
		"flag over file":    {nil, append(inFile, flag...), time.Second, []string{"default=http://flag"}},
		"flag over env":     {env, flag, time.Second, []string{"default=http://flag"}},
		"empty env":         {map[string]string{"MCP_SIDECAR_HOLD": ""}, inFile, 3 * time.Second, []string{"default=http://file"}},
		"foreign env":       {map[string]string{"MCP_SIDECAR_PORT": "tcp://10.0.0.1:80", "MCP_SIDECAR_SERVICE_HOST": "10.0.0.1"}, nil, 25 * time.Second, nil},
		"config by env":     {map[string]string{"MCP_SIDECAR_CONFIG": file}, nil, 3 * time.Second, []string{"default=http://file"}},
	} {
		t.Run(name, func(t *testing.T) {
			c := loadConfig(t, tt.env, append([]string{"--upstream", "http://h/mcp"}, tt.args...)...)
			var agents []string
			for _, a := range c.AgentServers {
				agents = append(agents, a.Name+"="+a.URL)
			}
			if c.Hold != tt.hold || !reflect.DeepEqual(agents, tt.agents) {
				t.Errorf("hold %s, agent servers %q", c.Hold, agents)
			}
		})
	}
}

func TestStdioCommand(t *testing.T) {
	c := loadConfig(t, nil, "--hold", "1s", "--stdio", "--", "python", "server.py", "--hold", "--", "x")
	s := c.Server("default")
	if s == nil || s.Transport != "stdio" || strings.Join(s.Command, " ") != "python server.py --hold -- x" || s.Hold != time.Second {
		t.Errorf("server %+v", s)
	}
}

// TestFlagsAreDocumented walks all flags of run.
func TestFlagsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	keys := map[string]bool{}
	for f := range reflect.TypeFor[config.Config]().Fields() {
		key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		keys[key] = true
	}
	p, _, err := newParser(console{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cmd := range p.Model.Children {
		if cmd.Name != "run" {
			continue
		}
		for _, f := range cmd.Flags {
			if f.Help == "" || envName(f) != "MCP_SIDECAR_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_")) {
				t.Errorf("--%s: help %q, variable %q", f.Name, f.Help, envName(f))
			}
			if f.Name != "config" && !keys[configKey(f.Name)] {
				t.Errorf("--%s has no key %s in the configuration file", f.Name, configKey(f.Name))
			}
			if !strings.Contains(string(doc), "| `--"+f.Name+"` |") {
				t.Errorf("--%s has no row in docs/configuration.md", f.Name)
			}
		}
	}
}

// TestKeysAreDocumented walks all keys of the configuration file.
func TestKeysAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[config.Config](), reflect.TypeFor[config.Server](), reflect.TypeFor[config.Probe](), reflect.TypeFor[config.Identity](),
		reflect.TypeFor[config.AgentServer](), reflect.TypeFor[config.Conversation](),
	} {
		for f := range typ.Fields() {
			key, _, _ := strings.Cut(f.Tag.Get("yaml"), ",")
			if !strings.Contains(string(doc), "`"+key+"`") {
				t.Errorf("%s of %s is not in docs/configuration.md", key, typ.Name())
			}
		}
	}
}

// TestCommandsAreDocumented walks all commands.
func TestCommandsAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../docs/cli.md")
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := newParser(console{})
	if err != nil {
		t.Fatal(err)
	}
	var walk func(n *kong.Node, path string)
	walk = func(n *kong.Node, path string) {
		for _, c := range n.Children {
			if c.Hidden {
				continue
			}
			full := strings.TrimSpace(path + " " + c.Name)
			if !strings.Contains(string(doc), "mcp-sidecar "+full) {
				t.Errorf("%s is not in docs/cli.md", full)
			}
			for _, f := range c.Flags {
				if c.Name != "run" && c.Name != "check" && !f.Hidden && !strings.Contains(string(doc), "`--"+f.Name) {
					t.Errorf("--%s of %s is not in docs/cli.md", f.Name, full)
				}
			}
			walk(c, full)
		}
	}
	walk(p.Model.Node, "")
}

func TestCheck(t *testing.T) {
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good.yaml"), filepath.Join(dir, "bad.yaml")
	writeFile(t, good, "upstream: http://h/mcp\nagentServer: [http://a, b=http://b]\n")
	writeFile(t, bad, "upstream: http://h/mcp\nfoo: 1\nhold: -1s\n")
	for name, tt := range map[string]struct {
		args []string
		want result
	}{
		"good": {[]string{"--config", good}, result{exitOK, "ok: 1 server, 2 agent servers\n", ""}},
		"bad":  {[]string{"--config", bad}, result{exitUsage, bad + ":2:1: foo: unknown key\n" + bad + ":3:1: hold: must not be negative, got -1s\n", ""}},
		"good as JSON": {[]string{"--config", good, "--json"}, result{exitOK, `{
  "valid": true,
  "problems": []
}
`, ""}},
		"bad as JSON": {[]string{"--config", bad, "--json", "--hold", "1s"}, result{exitUsage, `{
  "valid": false,
  "problems": [
    {
      "file": "` + bad + `",
      "line": 2,
      "column": 1,
      "key": "foo",
      "message": "unknown key"
    }
  ]
}
`, ""}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, runCLI(t, nil, append([]string{"check"}, tt.args...)...), cmp.AllowUnexported(result{})); diff != "" {
				t.Errorf("result (-want +got):\n%s", diff)
			}
		})
	}
}

func TestToolsAndDiff(t *testing.T) {
	b := startBackend(t, "add", "sub")
	r := runCLI(t, nil, "tools", b.url())
	want := `TOOL  DIGEST        DESCRIPTION
add   85a9fc25b003  -
sub   DIGEST        -

2 tools, hash sha256:HASH
server backend 1
`
	got := r.stdout
	for line := range strings.SplitSeq(got, "\n") {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "sub" {
			got = strings.Replace(got, f[1], "DIGEST      ", 1)
		}
		if _, hash, ok := strings.Cut(line, "hash sha256:"); ok {
			got = strings.Replace(got, hash, "HASH", 1)
		}
	}
	if diff := cmp.Diff(want, got); r.code != exitOK || diff != "" {
		t.Errorf("%d %s (-want +got):\n%s", r.code, r.stderr, diff)
	}

	dir := t.TempDir()
	before := filepath.Join(dir, "before.json")
	writeFile(t, before, runCLI(t, nil, "tools", "--json", b.url()).stdout)
	if r := runCLI(t, nil, "diff", before, b.url()); r != (result{exitOK, "no difference\n", ""}) {
		t.Errorf("same: %+v", r)
	}
	raw := filepath.Join(dir, "raw.json")
	writeFile(t, raw, `{"tools":[{"name":"add","inputSchema":{"type":"object","properties":{},"required":[]}},{"name":"mul\u001b[31m","inputSchema":{"type":"object"}}]}`)
	if r := runCLI(t, nil, "diff", before, raw); r.code != exitFailure || !strings.Contains(r.stdout, "- sub (breaking)\n") ||
		!strings.Contains(r.stdout, "+ mul?[31m (additive)\n") || r.stderr != "" {
		t.Errorf("different: %+v", r)
	}
	if r := runCLI(t, nil, "diff", "--json", before, raw); r.code != exitFailure || !strings.Contains(r.stdout, `"breaking": true`) {
		t.Errorf("different, as JSON: %+v", r)
	}
	if r := runCLI(t, nil, "diff", before, dir+"/none"); r.code != exitUsage || !strings.Contains(r.stderr, "want a URL or a file") {
		t.Errorf("no file: %+v", r)
	}
	b.stop()
	if r := runCLI(t, nil, "tools", b.url()); r.code != exitFailure || !strings.Contains(r.stderr, "is the server running") {
		t.Errorf("no server: %+v", r)
	}
	if r := runCLI(t, nil, "diff", before, b.url()); r.code != exitUsage {
		t.Errorf("diff with no server: %+v", r)
	}
}

func TestStatusTable(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	stale := now.Add(-7 * time.Minute)
	st := admin.Status{
		Version: "v1.2.3", StartedAt: now.Add(-50 * time.Hour), Quiescing: true, ConfigError: "f.yaml:1:1: foo: unknown key", OldestStale: &stale,
		Servers: []admin.Server{
			{
				Name: "default", Path: "/mcp", State: "settled", Generation: 3, Hash: "sha256:0123456789abcdef", Tools: make([]admin.Tool, 12),
				LastSwap: &admin.Swap{At: now.Add(-90 * time.Minute), Cause: "restart"}, Sessions: 4, Streams: 2,
			},
			{Name: "github", Path: "/github/mcp", State: "away", Held: 1},
		},
		AgentServers: []admin.AgentServer{{Name: "default", URL: "http://127.0.0.1:8000", Conversations: map[string]int{"current": 5, "stale": 1}}},
	}
	want := `mcp-sidecar v1.2.3, started 2d ago, quiescing

SERVER   PATH         STATE    GENERATION  TOOLS  HASH          LAST SWAP            SESSIONS  STREAMS  HELD
default  /mcp         settled  3           12     0123456789ab  1h30m ago (restart)  4         2        0
github   /github/mcp  away     -           0      -             -                    0         0        1

AGENT SERVER  URL                    CURRENT  STALE  FAILED  PARKED  DORMANT  UNSUPPORTED
default       http://127.0.0.1:8000  5        1      0       0       0        0

The oldest stale conversation is stale since 7m ago: see mcp-sidecar conversations list --state stale

The configuration file has problems, the last good one is in force:
f.yaml:1:1: foo: unknown key
`
	var out bytes.Buffer
	if err := printStatus(&out, st, now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
}

func TestConversationsTable(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	soon, past := now.Add(90*time.Second), now.Add(-time.Second)
	all := []admin.Conversation{
		{ID: "a", AgentServer: "default", State: "current", Servers: []admin.Standing{{Name: "default", Desired: 2, Applied: 2, How: "observed"}}},
		{
			ID: "b", AgentServer: "default", State: "failed", Attempts: 3, LastError: &admin.RefreshFailed{Reason: "network"}, NextAttempt: &soon,
			Servers: []admin.Standing{{Name: "default", Desired: 2, Applied: 1, How: "acknowledged"}, {Name: "github", Desired: 1}},
		},
		{ID: "c", AgentServer: "default", State: "parked", NextAttempt: &past},
	}
	want := `CONVERSATION  AGENT SERVER  STATE    APPLIED                                       ATTEMPTS  LAST ERROR  NEXT ATTEMPT
a             default       current  default 2 of 2 (observed)                     0         -           -
b             default       failed   default 1 of 2 (acknowledged), github 0 of 1  3         network     in 1m30s
c             default       parked   -                                             0         -           now
`
	var out bytes.Buffer
	if err := printConversations(&out, all, now); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("conversations (-want +got):\n%s", diff)
	}
}

// TestAdminCommands runs the commands against a running sidecar.
func TestAdminCommands(t *testing.T) {
	b := startBackend(t, "add")
	a := testApp(t, testConfig(t, b.url(), func(c *config.Config) { c.AgentServer = []string{"http://127.0.0.1:1"} }))
	_, port, err := net.SplitHostPort(a.addr("admin"))
	if err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"MCP_SIDECAR_ADMIN_LISTEN": ":" + port, "MCP_SIDECAR_AGENT_SERVER": "http://not-for-this"}
	for _, tt := range []struct {
		args string
		code int
		out  string
	}{
		{"status", exitOK, "default  /mcp"},
		{"status --json", exitOK, `"servers": [`},
		{"conversations list", exitOK, "no conversations\n"},
		{"conversations list --json", exitOK, `"conversations": []`},
		{"conversations add one", exitOK, "one"},
		{"conversations add two --agent-server default --server default --json", exitOK, `"id": "two"`},
		{"conversations list --limit 1", exitOK, "one"},
		{"conversations refresh one two", exitOK, "asked for a refresh of one\nasked for a refresh of two\n"},
		{"conversations remove one three two", exitFailure, "removed one\nremoved two\n"},
		{"conversations list --state nonsense", exitFailure, ""},
		{"conversations add four --agent-server nope", exitFailure, ""},
		{"quiesce", exitOK, "quiescing\n"},
	} {
		r := runCLI(t, env, strings.Fields(tt.args)...)
		if r.code != tt.code || !strings.Contains(r.stdout, tt.out) || strings.Count(r.stderr, "\n") != r.code {
			t.Errorf("%s: %+v", tt.args, r)
		}
	}
}

func TestAdminToken(t *testing.T) {
	dir := t.TempDir()
	token := filepath.Join(dir, "token")
	writeFile(t, token, "secret\n")
	a := testApp(t, testConfig(t, "http://127.0.0.1:1/mcp", func(c *config.Config) { c.AdminTokenFile = token }))
	if r := runCLI(t, nil, "status", "--admin", a.addr("admin")); r.code != exitFailure || !strings.Contains(r.stderr, "use --admin-token-file") {
		t.Errorf("without: %+v", r)
	}
	if r := runCLI(t, map[string]string{"MCP_SIDECAR_ADMIN_TOKEN_FILE": token}, "status", "--admin", a.addr("admin")); r.code != exitOK {
		t.Errorf("with: %+v", r)
	}
}

func TestVersion(t *testing.T) {
	b := metrics.ReadBuild()
	want := fmt.Sprintf("mcp-sidecar %s (revision %s of %s, %s)\n", b.Version, b.Revision, b.Date, b.GoVersion)
	if r := runCLI(t, nil, "version"); r.code != exitOK || r.stdout != want {
		t.Errorf("%+v, want %s", r, want)
	}
	r := runCLI(t, nil, "version", "--json")
	var got map[string]string
	if err := json.Unmarshal([]byte(r.stdout), &got); r.code != exitOK || err != nil {
		t.Errorf("%+v, %v", r, err)
	}
	if diff := cmp.Diff(map[string]string{"version": b.Version, "revision": b.Revision, "date": b.Date, "goVersion": b.GoVersion}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// pages answers with one page after the other.
type pages struct{ asked int }

func (p *pages) List(q conversation.Query) (conversation.Page, error) {
	p.asked++
	var v conversation.View
	v.ID = conversation.ID("c" + q.Cursor)
	if q.Cursor == "xx" {
		return conversation.Page{Items: []conversation.View{v}}, nil
	}
	return conversation.Page{Items: []conversation.View{v}, Next: q.Cursor + "x"}, nil
}

func (*pages) Register(context.Context, conversation.Registration) (conversation.Conversation, bool, error) {
	return conversation.Conversation{}, false, nil
}
func (*pages) Remove(context.Context, conversation.ID) error { return nil }
func (*pages) Get(conversation.ID) (conversation.View, error) {
	return conversation.View{}, conversation.ErrNotFound
}
func (*pages) Refresh(context.Context, conversation.ID) error { return nil }

func TestListReadsAllPages(t *testing.T) {
	p := &pages{}
	srv := httptest.NewServer(admin.New(admin.Deps{Conversations: p, Feed: admin.NewFeed()}))
	defer srv.Close()
	if r := runCLI(t, nil, "conversations", "list", "--admin", srv.URL); p.asked != 3 || !strings.Contains(r.stdout, "\ncxx ") {
		t.Errorf("%d pages: %+v", p.asked, r)
	}
	p.asked = 0
	if r := runCLI(t, nil, "conversations", "list", "--limit", "2", "--admin", srv.URL); p.asked != 2 || strings.Contains(r.stdout, "cxx") {
		t.Errorf("%d pages: %+v", p.asked, r)
	}
}
