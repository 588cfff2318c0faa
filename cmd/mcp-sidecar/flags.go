package main

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// configFlags are the flags that make up a configuration. A flag that wasn't
// given is nil, so that the file and the defaults show through.
type configFlags struct {
	Config string `placeholder:"FILE" help:"YAML configuration file. Flags and variables win over it."`

	Listen        *string  `placeholder:"ADDR" help:"Where agents connect (default ${listen})."`
	PublicURL     []string `name:"public-url" placeholder:"URL" help:"A URL that agents use for the sidecar (repeatable). Discovery matches them, and the Host of requests is checked against them."`
	AllowedOrigin []string `placeholder:"ORIGIN" help:"A browser origin that may talk to the sidecar (repeatable; none by default)."`
	TLSCertFile   *string  `name:"tls-cert-file" placeholder:"FILE" help:"Certificate for --listen, re-read on change."`
	TLSKeyFile    *string  `name:"tls-key-file" placeholder:"FILE" help:"Key for --listen, re-read on change."`

	ListenTokenFile *string `placeholder:"FILE" help:"Bearer tokens that agents need, one a line, re-read on change. Authorization is then the sidecar's own header and doesn't reach the backend."`

	Upstream         *string  `placeholder:"URL" help:"URL of the backend, such as http://127.0.0.1:9000/mcp. Served on the same path, as the server named default."`
	Stdio            bool     `help:"The backend is a command that talks MCP over stdio: write it after --, as in --stdio -- python server.py."`
	Command          []string `arg:"" optional:"" passthrough:"partial" help:"With --stdio: the backend's command, after --."`
	HealthPath       *string  `placeholder:"PATH" help:"HTTP path on the backend that answers 2xx when it is healthy (optional)."`
	ProbeHeadersFile *string  `placeholder:"FILE" help:"Headers for the sidecar's own requests to the backend, one NAME: VALUE a line; re-read on use."`

	OpsListen      *string `placeholder:"ADDR" help:"Where /metrics, /livez, /readyz and /startupz are (default ${opsListen})."`
	AdminListen    *string `placeholder:"ADDR" help:"Where the admin API and the status page are (default ${adminListen})."`
	AdminTokenFile *string `placeholder:"FILE" help:"Bearer token of the admin API, re-read on use. Required when --admin-listen is not a loopback address."`
	RegisterListen *string `placeholder:"ADDR" help:"Where agent servers may register conversations, each with its own token (off by default)."`

	AgentServer     []string `placeholder:"[NAME=]URL" help:"An agent server (repeatable). The first without a name is called default."`
	AgentAPIKeyFile *string  `name:"agent-api-key-file" placeholder:"FILE" help:"X-Session-API-Key of the agent servers given with --agent-server, re-read on use."`

	State          *string `placeholder:"FILE" help:"File that keeps registrations and sessions (default ${state})."`
	SessionKeyFile *string `placeholder:"FILE" help:"Keys that seal session ids and stored credentials: the first seals, all open. Without it, one is generated into the state."`

	Redis             *string `placeholder:"URL" help:"Redis or Valkey, such as redis://HOST:6379/0 (rediss:// for TLS): a registry for several replicas, instead of --state."`
	RedisPasswordFile *string `placeholder:"FILE" help:"Password of the Redis server; its user is in the URL. Re-read for each connection."`
	RedisCAFile       *string `name:"redis-ca-file" placeholder:"FILE" help:"PEM certificates to trust with rediss://, instead of the system's."`
	RedisPrefix       *string `placeholder:"NAME" help:"Begins the names of all keys: replicas with the same one belong together (default ${redisPrefix})."`

	Hold          *string `placeholder:"DURATION" help:"How long initialize, lists and other quick requests may wait for the backend (default ${hold})."`
	HoldCall      *string `placeholder:"DURATION" help:"How long tools/call may wait for the backend (default ${holdCall})."`
	ProbeInterval *string `placeholder:"DURATION" help:"Time between two looks at the backend (default ${probeInterval})."`
	ProbeTimeout  *string `placeholder:"DURATION" help:"Time for one look (default ${probeTimeout})."`
	ListInterval  *string `placeholder:"DURATION" help:"Time between two full tool listings without any other reason (default ${listInterval})."`
	Settle        *string `placeholder:"DURATION" help:"How long a new tool list must stay the same before it counts (default ${settle})."`
	RefreshOn     *string `placeholder:"WHAT" help:"What conversations are refreshed for: schema (tools changed, or a session was lost) or swap (every new process) (default ${refreshOn})."`

	LogFormat *string `placeholder:"FORMAT" help:"auto, text or json; auto is text on a terminal (default ${logFormat})."`
	LogLevel  *string `placeholder:"LEVEL" help:"debug, info, warn or error (default ${logLevel})."`
}

// load makes the configuration. Errors are usage errors.
func (f *configFlags) load(o origins) (*config.Config, error) {
	if len(f.Command) > 0 && f.Command[0] == "--" {
		f.Command = f.Command[1:]
	}
	switch {
	case f.Stdio && len(f.Command) == 0:
		return nil, usageError{errors.New("--stdio needs the backend's command after --, as in: --stdio -- python server.py")}
	case f.Stdio && f.Upstream != nil:
		return nil, usageError{errors.New("--upstream and --stdio are both given: a backend has a URL or a command")}
	case !f.Stdio && len(f.Command) > 0:
		return nil, usageError{fmt.Errorf("unexpected argument %q: a command is for --stdio -- COMMAND", f.Command[0])}
	}
	c, err := config.Load(f.Config, f.overrides(o)...)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// overrides returns what flags and variables set.
func (f *configFlags) overrides(o origins) []config.Override {
	var all []config.Override
	add := func(flag string, apply func(*config.Config) error) {
		all = append(all, config.Override{Key: configKey(flag), Origin: o.of(flag), Apply: apply})
	}
	text := func(flag string, v *string, field func(*config.Config) *string) {
		if v != nil {
			add(flag, func(c *config.Config) error { *field(c) = *v; return nil })
		}
	}
	list := func(flag string, v []string, field func(*config.Config) *[]string) {
		if v != nil {
			add(flag, func(c *config.Config) error { *field(c) = v; return nil })
		}
	}
	duration := func(flag string, v *string, field func(*config.Config) *time.Duration) {
		if v != nil {
			add(flag, func(c *config.Config) error { return setDuration(field(c), *v) })
		}
	}

	text("listen", f.Listen, func(c *config.Config) *string { return &c.Listen })
	list("public-url", f.PublicURL, func(c *config.Config) *[]string { return &c.PublicURL })
	list("allowed-origin", f.AllowedOrigin, func(c *config.Config) *[]string { return &c.AllowedOrigin })
	text("tls-cert-file", f.TLSCertFile, func(c *config.Config) *string { return &c.TLSCertFile })
	text("tls-key-file", f.TLSKeyFile, func(c *config.Config) *string { return &c.TLSKeyFile })
	if f.Upstream != nil {
		add("upstream", func(c *config.Config) error { c.Stdio = nil; return c.SetUpstream(*f.Upstream) })
	}
	if f.Stdio {
		add("stdio", func(c *config.Config) error { c.Upstream, c.Stdio = nil, f.Command; return nil })
	}
	text("health-path", f.HealthPath, func(c *config.Config) *string { return &c.HealthPath })
	text("probe-headers-file", f.ProbeHeadersFile, func(c *config.Config) *string { return &c.ProbeHeadersFile })
	text("listen-token-file", f.ListenTokenFile, func(c *config.Config) *string { return &c.ListenTokenFile })
	text("ops-listen", f.OpsListen, func(c *config.Config) *string { return &c.OpsListen })
	text("admin-listen", f.AdminListen, func(c *config.Config) *string { return &c.AdminListen })
	text("admin-token-file", f.AdminTokenFile, func(c *config.Config) *string { return &c.AdminTokenFile })
	text("register-listen", f.RegisterListen, func(c *config.Config) *string { return &c.RegisterListen })
	list("agent-server", f.AgentServer, func(c *config.Config) *[]string { return &c.AgentServer })
	text("agent-api-key-file", f.AgentAPIKeyFile, func(c *config.Config) *string { return &c.AgentAPIKeyFile })
	text("state", f.State, func(c *config.Config) *string { return &c.State })
	text("session-key-file", f.SessionKeyFile, func(c *config.Config) *string { return &c.SessionKeyFile })
	text("redis", f.Redis, func(c *config.Config) *string { return &c.Redis })
	text("redis-password-file", f.RedisPasswordFile, func(c *config.Config) *string { return &c.RedisPasswordFile })
	text("redis-ca-file", f.RedisCAFile, func(c *config.Config) *string { return &c.RedisCAFile })
	text("redis-prefix", f.RedisPrefix, func(c *config.Config) *string { return &c.RedisPrefix })
	duration("hold", f.Hold, func(c *config.Config) *time.Duration { return &c.Hold })
	duration("hold-call", f.HoldCall, func(c *config.Config) *time.Duration { return &c.HoldCall })
	duration("probe-interval", f.ProbeInterval, func(c *config.Config) *time.Duration { return &c.ProbeInterval })
	duration("probe-timeout", f.ProbeTimeout, func(c *config.Config) *time.Duration { return &c.ProbeTimeout })
	duration("list-interval", f.ListInterval, func(c *config.Config) *time.Duration { return &c.ListInterval })
	duration("settle", f.Settle, func(c *config.Config) *time.Duration { return &c.Settle })
	text("refresh-on", f.RefreshOn, func(c *config.Config) *string { return &c.RefreshOn })
	text("log-format", f.LogFormat, func(c *config.Config) *string { return &c.LogFormat })
	if f.LogLevel != nil {
		add("log-level", func(c *config.Config) error { return setLogLevel(&c.LogLevel, *f.LogLevel) })
	}
	return all
}

func setDuration(d *time.Duration, s string) error {
	v, err := time.ParseDuration(s)
	if err != nil {
		return fmt.Errorf(`want a duration such as "25s" or "1m30s", got %q`, s)
	}
	*d = v
	return nil
}

func setLogLevel(l *slog.Level, s string) error {
	if err := l.UnmarshalText([]byte(s)); err != nil {
		return fmt.Errorf("want one of debug, info, warn and error, got %q", s)
	}
	return nil
}

// configKey is the key of a flag in the configuration file: its name in camel
// case.
func configKey(flag string) string {
	words := strings.Split(flag, "-")
	for i, w := range words[1:] {
		words[i+1] = strings.ToUpper(w[:1]) + w[1:]
	}
	return strings.Join(words, "")
}
