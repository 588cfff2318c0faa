package config

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// problems returns what is wrong with a file of that content.
func problems(t *testing.T, yaml string, overrides ...Override) []string {
	t.Helper()
	_, r := parse("f.yaml", []byte(yaml), overrides)
	err := r.err()
	if err == nil {
		return nil
	}
	return strings.Split(err.Error(), "\n")
}

func override(key, origin string, apply func(*Config)) Override {
	return Override{Key: key, Origin: origin, Apply: func(c *Config) error { apply(c); return nil }}
}

func TestThreeMistakesGiveThreeMessages(t *testing.T) {
	got := problems(t, `listen: 127.0.0.1:8080
servers:
  - name: a
    upstream: http://127.0.0.1:9000/mcp
    upstraem: http://127.0.0.1:9001/mcp
    hold: 25
logLevel: loud
`)
	want := []string{
		`f.yaml:5:5: servers[0].upstraem: unknown key, did you mean "upstream"?`,
		`f.yaml:6:11: servers[0].hold: want a duration with its unit, such as "25s"`,
		`f.yaml:7:11: logLevel: want one of debug, info, warn and error, got "loud"`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestProblems(t *testing.T) {
	const ok = "upstream: http://127.0.0.1:9000/mcp\n"
	tests := []struct {
		name, yaml string
		want       []string
	}{
		{"minimal", ok, nil},
		{"empty file", "", []string{`f.yaml: the file is empty: a file that was cut short looks like this, so it is not taken for one that changes nothing`}},
		{"only comments", "# nothing\n", []string{`f.yaml: the file is empty: a file that was cut short looks like this, so it is not taken for one that changes nothing`}},
		{"not YAML", "listen: [a\nservers: ]", []string{`f.yaml:2:1: not YAML: ',' or ']' must be specified`}},
		{"a list at the top", "- a\n", []string{`f.yaml:1:1: want keys and values, got a list`}},
		{"two documents", ok + "---\nlisten: x\n", []string{`f.yaml:3:7: a second YAML document: put everything into one`}},
		{"no server", "listen: :8080\n", []string{`f.yaml: servers: no server: give --upstream URL (or --stdio -- COMMAND), or list servers in the configuration file`}},
		{"misspelt servers", "server: []\n", []string{`f.yaml:1:1: server: unknown key, did you mean "servers"?`}},
		{"kebab-case key", ok + "probe-interval: 3s\n", []string{`f.yaml:2:1: probe-interval: unknown key, did you mean "probeInterval"?`}},
		{"twice", ok + "hold: 1s\nhold: 2s\n", []string{`f.yaml:3:1: hold: the key is there twice: remove one`}},
		{"wrong types", ok + "maxHeld: many\ndrainDelay: [1s]\nservers: 5\nstate: 7\n", []string{
			`f.yaml:2:10: maxHeld: want a whole number, got "many"`,
			`f.yaml:3:13: drainDelay: want a duration such as "25s", got a list`,
			`f.yaml:4:10: servers: want a list, got a number`,
			`f.yaml:5:8: state: want a text, got a number: put it in quotes`,
		}},
		{"probe timeout", ok + "probeInterval: 1s\nprobeTimeout: 1s\n", []string{
			`f.yaml:3:1: probeTimeout: must be shorter than the probe interval (1s), got 1s`,
		}},
		{"probe timeout of one server", "servers:\n- upstream: http://h/mcp\n  probe: {interval: 500ms}\n", []string{
			`f.yaml:3:11: servers[0].probe.interval: the probe timeout (1s) must be shorter than the probe interval (500ms)`,
		}},
		{"admin for everybody", ok + "adminListen: :9091\n", []string{
			`f.yaml:2:1: adminListen: :9091 can be reached from other machines: set --admin-token-file, or listen on 127.0.0.1`,
		}},
		{"bad listeners", ok + "listen: nowhere\nopsListen: 127.0.0.1:99999\nadminListen: 127.0.0.1:9095\nregisterListen: 127.0.0.1:9095\n", []string{
			`f.yaml:2:1: listen: want HOST:PORT or :PORT, got "nowhere"`,
			`f.yaml:3:1: opsListen: "99999" is not a port: want a number up to 65535`,
			`f.yaml:5:1: registerListen: 127.0.0.1:9095 is the address of adminListen too: give each its own port`,
		}},
		{"registration without tokens", ok + "registerListen: :9092\n", []string{
			`f.yaml:2:1: registerListen: nobody could register: set registerTokenFile at an entry of agentServers`,
		}},
		{"redis without a key", ok + "redis: redis://localhost\n", []string{
			`f.yaml:2:1: redis: replicas must be able to open each other's sessions: give all of them the same --session-key-file`,
		}},
		{"redis with its password", ok + "sessionKeyFile: k\nredis: redis://u:s3cret@localhost\n", []string{
			`f.yaml:3:1: redis: the URL must not hold the password: put it into a file and name that with --redis-password-file`,
		}},
		{"redis files without redis", ok + "redisPasswordFile: p\n", []string{`f.yaml:2:1: redisPasswordFile: is for --redis, which is not set`}},
		{"half TLS", ok + "tlsCertFile: c.pem\n", []string{`f.yaml: tlsKeyFile: TLS needs both a certificate and a key file`}},
		{"bad upstream", "upstream: 127.0.0.1:9000\n", []string{`f.yaml:1:11: upstream: not a URL (first path segment in URL cannot contain colon): write it like http://127.0.0.1:9000/mcp`}},
		{"upstream with a password", "upstream: http://me:secret@h/mcp\n", []string{`f.yaml:1:1: upstream: must not hold a user or a password: give credentials in a file`}},
		{"both kinds of upstream", ok + "stdio: [server]\n", []string{`f.yaml:2:1: stdio: both an upstream URL and a stdio command are given: a server has one of them`}},
		{"no upstream", "servers:\n- name: a\n", []string{`f.yaml:2:3: servers[0].upstream: needs the URL of the backend, such as http://127.0.0.1:9000/mcp`}},
		{"names and paths", `servers:
- {name: a, upstream: "http://h:1/mcp"}
- {name: a, upstream: "http://h:2/mcp"}
- {name: "b/c", upstream: "http://h:3/mcp", path: mcp}
- {upstream: "http://h:4/mcp", path: /c/x}
`, []string{
			`f.yaml:3:4: servers[1].name: "a" is the name of another server too`,
			`f.yaml:3:4: servers[1].path: /mcp is the path of server "a" too: set path to tell them apart`,
			`f.yaml:4:4: servers[2].name: must be 1 to 63 letters, digits, dots, dashes or underscores, got "b/c"`,
			`f.yaml:4:45: servers[2].path: must begin with a slash, got "mcp"`,
			`f.yaml:5:4: servers[3].name: each of several servers needs a name`,
			`f.yaml:5:32: servers[3].path: must not begin with /c/: that names conversations`,
		}},
		{"transports", `servers:
- {name: a, transport: http, upstream: "http://h/a"}
- {name: b, transport: stdio, path: /b}
- {name: c, transport: sse, upstream: "http://h/x", command: [x]}
`, []string{
			`f.yaml:2:13: servers[0].transport: want streamable-http, sse, stdio, got "http"`,
			`f.yaml:3:4: servers[1].command: a stdio server needs the command that starts it`,
			`f.yaml:4:53: servers[2].command: only a server with transport stdio has a command`,
		}},
		{"environments", `servers:
- {name: a, upstream: "http://h/a", directory: /, environment: {X: y}}
- {name: b, path: /b, command: [x], environment: {"A=B": z, N: 1, N: "2"}}
- {name: c, path: /c2, command: [x], environment: [X]}
`, []string{
			`f.yaml:2:51: servers[0].environment: only a server with transport stdio has a directory and an environment`,
			`f.yaml:3:37: servers[1].environment: "A=B" can't be the name of a variable`,
			`f.yaml:3:64: servers[1].environment.N: want a text, got a number: put it in quotes`,
			`f.yaml:3:67: servers[1].environment.N: the key is there twice: remove one`,
			`f.yaml:4:51: servers[2].environment: want names and values, got a list`,
		}},
		{"half a client certificate, and one for http", ok + `agentServers:
- {name: a, url: "https://h:8000", certFile: c}
- {name: b, url: "http://h:8001", certFile: c, keyFile: k}
`, []string{
			`f.yaml:3:36: agentServers[0].certFile: a client certificate needs both certFile and keyFile`,
			`f.yaml:4:35: agentServers[1].certFile: a client certificate is for a url with https://`,
		}},
		{"agent servers", ok + `agentServers:
- {name: a, url: "http://h:8000"}
- {name: a, url: "ftp://h"}
- {name: b, url: "http://169.254.169.254"}
- {name: c, url: "http://[::ffff:169.254.169.254]"}
- {name: d, url: "https://*.*.example.com"}
- {name: e, concurrency: 0}
- {name: f, url: "https://*.example.com", refreshPath: /refresh}
- {name: g, url: "http://localhost:*"}
`, []string{
			`f.yaml:4:4: agentServers[1].name: "a" is the name of another agent server too`,
			`f.yaml:4:13: agentServers[1].url: must begin with http:// or https://`,
			`f.yaml:5:13: agentServers[2].url: 169.254.169.254 is not the address of an agent server: link-local, metadata and unspecified addresses are refused`,
			`f.yaml:6:13: agentServers[3].url: 169.254.169.254 is not the address of an agent server: link-local, metadata and unspecified addresses are refused`,
			`f.yaml:7:13: agentServers[4].url: want a pattern such as "https://*.example.com" or "http://localhost:*": the wildcard is for the beginning of the host or the port`,
			`f.yaml:8:4: agentServers[5].url: needs the URL of the agent server, such as http://127.0.0.1:8000`,
			`f.yaml:8:13: agentServers[5].concurrency: must be at least 1, got 0`,
			`f.yaml:9:43: agentServers[6].refreshPath: want a path that holds {id} once, such as /api/conversations/{id}/refresh_mcp_tools, got "/refresh"`,
		}},
		{"second shorthand without a name", ok + "agentServer: [http://h:1, http://h:2]\n", []string{
			`f.yaml:2:1: agentServer: only the first agent server may go without a name: write NAME=http://h:2`,
		}},
		{"key without agent server", ok + "agentApiKeyFile: k\n", []string{
			`f.yaml:2:1: agentApiKeyFile: a key without an agent server: add --agent-server, or write apiKeyFile at an entry of agentServers`,
		}},
		{"conversations", ok + `agentServer: http://h:1
conversations:
- {id: x}
- {id: x, agentServer: other}
- {servers: [nope]}
`, []string{
			`f.yaml:5:4: conversations[1].id: "x" is there twice`,
			`f.yaml:5:11: conversations[1].agentServer: there is no agent server "other": add it to agentServers`,
			`f.yaml:6:4: conversations[2].id: needs the conversation's id at its agent server`,
			`f.yaml:6:14: conversations[2].servers[0]: there is no server "nope": known are default`,
		}},
		{"origins", ok + "allowedOrigin: [https://ok.example, '*', https://x/path]\n", []string{
			`f.yaml:2:37: allowedOrigin[1]: want an origin such as https://app.example.com, without a path or wildcard, got "*"`,
			`f.yaml:2:42: allowedOrigin[2]: want an origin such as https://app.example.com, without a path or wildcard, got "https://x/path"`,
		}},
		{"unknown alias", ok + "hold: *x\n", []string{`f.yaml:2:7: hold: want a duration such as "25s", got an alias of an anchor that isn't there`}},
		{"merge of itself", "servers: &s\n- {<<: *s, name: a, upstream: \"http://h/mcp\"}\n", []string{`f.yaml:2:8: servers[0]: the merged value contains itself`}},
		{"alias of itself", ok + "publicUrl: &a [*a]\n", []string{`f.yaml:2:16: publicUrl[0]: want a text, got a list`}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, problems(t, tt.yaml)); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

// TestExpand shows what entries get from shorthands and global settings.
func TestExpand(t *testing.T) {
	c, r := parse("/etc/s/f.yaml", []byte(`
upstream: http://127.0.0.1:9000/mcp
agentServer: [http://127.0.0.1:8000, "b=http://b:8000/x?=1"]
agentApiKeyFile: keys/a
hold: 10s
healthPath: /healthz
x: &probe {interval: 5s, headersFile: h}
servers:
- name: other
  path: /other/
  upstream: http://127.0.0.1:9001
  hold: 3s
  probe:
    <<: *probe
    timeout: 2s
  identity: {pidFile: run/pid}
  watch: app.py
- name: tool
  command: [python, server.py]
  path: /tool
conversations: [{id: x}]
`), nil)
	if got := len(r.problems); got != 2 || r.problems[0].Key != "x" && r.problems[1].Key != "x" {
		t.Errorf("problems = %v, want those of x and of the query only", r.err())
	}
	mustURL := func(s string) *url.URL {
		u, err := parseURL(s)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	probe := Probe{
		Interval: 2 * time.Second, Timeout: time.Second, ConnectTimeout: 5 * time.Second,
		ListInterval: 30 * time.Second, ListTimeout: 10 * time.Second, Fails: 3, Passes: 1,
	}
	base := Server{
		Transport: "streamable-http", Health: "/healthz", Probe: probe, Hold: 10 * time.Second, HoldCall: 50 * time.Second,
		Settle: 300 * time.Millisecond, ShrinkGrace: 2 * time.Second, EmptyGrace: 30 * time.Second, Replay: "hints", MaxTools: 10_000, MaxListBytes: 16 << 20,
	}
	other, tool, def := base, base, base
	other.Name, other.Path, other.Upstream, other.Hold = "other", "/other/", mustURL("http://127.0.0.1:9001"), 3*time.Second
	other.Probe.Interval, other.Probe.Timeout, other.Probe.HeadersFile = 5*time.Second, 2*time.Second, "/etc/s/h"
	other.Identity.PIDFile, other.Watch = "/etc/s/run/pid", []string{"/etc/s/app.py"}
	tool.Name, tool.Path, tool.Transport, tool.Command = "tool", "/tool", "stdio", []string{"python", "server.py"}
	def.Name, def.Path, def.Upstream = "default", "/mcp", mustURL("http://127.0.0.1:9000/mcp")
	if diff := cmp.Diff([]Server{other, tool, def}, c.Servers); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	wantAgents := []AgentServer{
		{Name: "default", URL: "http://127.0.0.1:8000", APIKeyFile: "/etc/s/keys/a", Discover: true, Concurrency: 4, IdleAfter: 20 * time.Minute},
		{Name: "b", URL: "http://b:8000/x?=1", APIKeyFile: "/etc/s/keys/a", Discover: true, Concurrency: 4, IdleAfter: 20 * time.Minute},
	}
	if diff := cmp.Diff(wantAgents, c.AgentServers); diff != "" {
		t.Errorf("agent servers (-want +got):\n%s", diff)
	}
	wantConv := []Conversation{{ID: "x", AgentServer: "default", Servers: []string{"other", "tool", "default"}}}
	if diff := cmp.Diff(wantConv, c.Conversations); diff != "" {
		t.Errorf("conversations (-want +got):\n%s", diff)
	}
}

// TestShorthandSetsTheNamedEntry: a flag wins over the file without losing what
// the file says besides.
func TestShorthandSetsTheNamedEntry(t *testing.T) {
	c, r := parse("f.yaml", []byte(`
servers: [{name: default, path: /tools, upstream: "http://old/mcp"}]
agentServers: [{name: default, url: "http://old", caFile: /ca}]
`), []Override{
		{Key: "upstream", Origin: "--upstream", Apply: func(c *Config) error { return c.SetUpstream("http://new/mcp") }},
		override("agentServer", "--agent-server", func(c *Config) { c.AgentServer = []string{"http://new"} }),
	})
	if err := r.err(); err != nil {
		t.Fatal(err)
	}
	if s := c.Servers[0]; len(c.Servers) != 1 || s.Upstream.Host != "new" || s.Path != "/tools" {
		t.Errorf("servers = %+v", c.Servers)
	}
	if a := c.AgentServers[0]; len(c.AgentServers) != 1 || a.URL != "http://new" || a.CAFile != "/ca" {
		t.Errorf("agent servers = %+v", c.AgentServers)
	}
}

func TestOverrides(t *testing.T) {
	got := problems(t, "upstream: http://h/mcp\nhold: nonsense\nprobeTimeout: 1s\n",
		override("hold", "--hold", func(c *Config) { c.Hold = time.Second }), // the flag doesn't hide the mistake in the file
		override("probeInterval", "MCP_SIDECAR_PROBE_INTERVAL", func(c *Config) { c.ProbeInterval = time.Second }),
		override("listen", "--listen", func(c *Config) { c.Listen = "8080" }),
		Override{Key: "upstream", Origin: "--upstream", Apply: func(c *Config) error { return c.SetUpstream("http://x y/?secret") }},
	)
	want := []string{
		`--upstream: not a URL (invalid character " " in host name): write it like http://127.0.0.1:9000/mcp`,
		`--listen: want HOST:PORT or :PORT, got "8080"`,
		`f.yaml:2:7: hold: want a duration such as "25s" or "1m30s", got "nonsense"`,
		`f.yaml:3:1: probeTimeout: must be shorter than the probe interval (1s), got 1s`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "f.yaml")
	if err := os.WriteFile(file, []byte("upstream: http://h/mcp\nadminTokenFile: token\nsessionKeyFile: .\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Load(file)
	want := file + ":2:1: adminTokenFile: can't read the file: stat " + dir + "/token: no such file or directory\n" +
		file + ":3:1: sessionKeyFile: " + dir + " is a directory, not a file"
	if err == nil || err.Error() != want {
		t.Errorf("err = %v\nwant %s", err, want)
	}
	if e, ok := errors.AsType[*Error](err); !ok || len(e.Problems) != 2 || e.Problems[0].Line != 2 {
		t.Errorf("problems = %+v", e)
	}
	if _, err := Load(filepath.Join(dir, "none.yaml")); err == nil || !strings.Contains(err.Error(), "check --config") {
		t.Errorf("err = %v", err)
	}
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFile+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Load(big); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("err = %v", err)
	}
	c, err := Load("", Override{Key: "upstream", Origin: "--upstream", Apply: func(c *Config) error { return c.SetUpstream("http://h") }})
	if err != nil {
		t.Fatal(err)
	}
	if s := c.Server("default"); s == nil || s.Path != "/" || s.Hold != 25*time.Second {
		t.Errorf("server = %+v", s)
	}
}

func TestIsLoopback(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "127.8.8.8:1": true, "[::1]:1": true, "localhost:1": true, "[::ffff:127.0.0.1]:1": true,
		":1": false, "0.0.0.0:1": false, "10.0.0.1:1": false, "example.com:1": false, "nonsense": false,
	} {
		if got := IsLoopback(addr); got != want {
			t.Errorf("IsLoopback(%q) = %v", addr, got)
		}
	}
}

func TestRedact(t *testing.T) {
	for in, want := range map[string]string{
		"http://me:pw@h:1/mcp?key=1#x": "http://h:1/mcp",
		"http://h":                     "http://h",
		"http://[":                     "(not a URL)",
	} {
		if got := Redact(in); got != want {
			t.Errorf("Redact(%q) = %q, want %q", in, got, want)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add("upstream: http://h/mcp\nservers: [{name: a, hold: 1s}]\n")
	f.Add("a: &a [*a, *b]\n<<: *a\n")
	f.Add("servers: &s\n- <<: {name: x}\n  watch: *s\nagentServers: *s\n")
	f.Add("conversations: [{id: x, servers: [[]]}]\n---\n")
	f.Fuzz(func(t *testing.T, in string) {
		c, r := parse("f.yaml", []byte(in), nil)
		if r.err() != nil {
			return
		}
		for _, s := range c.Servers {
			if s.Name == "" || s.Path == "" || s.Upstream == nil && len(s.Command) == 0 {
				t.Errorf("a valid configuration has the server %+v", s)
			}
		}
	})
}
