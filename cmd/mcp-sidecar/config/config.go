// Package config holds everything that an operator can set: the types, their
// defaults, the YAML file and its validation.
//
// A configuration is made once by [Load] from defaults, the file and the
// overrides that flags and the environment give, in this order. All mistakes
// are reported together, each with its place. The result is plain data and is
// not changed afterwards; a reload makes a new one.
package config

import (
	"log/slog"
	"net/url"
	"time"
)

// Transports a backend can be reached by.
const (
	TransportStreamable = "streamable-http"
	TransportSSE        = "sse"
	TransportStdio      = "stdio"
)

// DefaultName is the name of the server and of the agent server that are
// given without one.
const DefaultName = "default"

// Config is the whole configuration. The key of a setting that is also a flag
// is the flag's name in camel case.
//
// After [Load], the shorthands Upstream, Stdio and AgentServer are entries of
// Servers and AgentServers, and every entry has the settings that it inherits.
type Config struct {
	Listen          string   `yaml:"listen"`
	PublicURL       []string `yaml:"publicUrl"`
	AllowedOrigin   []string `yaml:"allowedOrigin"`
	TLSCertFile     string   `yaml:"tlsCertFile,path"`
	TLSKeyFile      string   `yaml:"tlsKeyFile,path"`
	ListenTokenFile string   `yaml:"listenTokenFile,path"`
	OpsListen       string   `yaml:"opsListen"`
	AdminListen     string   `yaml:"adminListen"`
	AdminTokenFile  string   `yaml:"adminTokenFile,path"`
	RegisterListen  string   `yaml:"registerListen"`

	Upstream         *url.URL `yaml:"upstream"`
	Stdio            []string `yaml:"stdio"`
	HealthPath       string   `yaml:"healthPath"`
	ProbeHeadersFile string   `yaml:"probeHeadersFile,path"`
	AgentServer      []string `yaml:"agentServer"`
	AgentAPIKeyFile  string   `yaml:"agentApiKeyFile,path"`

	State          string `yaml:"state,path"`
	SessionKeyFile string `yaml:"sessionKeyFile,path"`

	Redis             string `yaml:"redis"` // instead of State
	RedisPasswordFile string `yaml:"redisPasswordFile,path"`
	RedisCAFile       string `yaml:"redisCaFile,path"`
	RedisPrefix       string `yaml:"redisPrefix"`

	Hold          time.Duration `yaml:"hold"`
	HoldCall      time.Duration `yaml:"holdCall"`
	ProbeInterval time.Duration `yaml:"probeInterval"`
	ProbeTimeout  time.Duration `yaml:"probeTimeout"`
	ListInterval  time.Duration `yaml:"listInterval"`
	Settle        time.Duration `yaml:"settle"`
	RefreshOn     string        `yaml:"refreshOn"`

	LogFormat string     `yaml:"logFormat"`
	LogLevel  slog.Level `yaml:"logLevel"`

	// Settings without a flag.

	ListenTransport     string        `yaml:"listenTransport"`
	UpstreamTransport   string        `yaml:"upstreamTransport"`
	MaxHeld             int           `yaml:"maxHeld"`
	SessionIdle         time.Duration `yaml:"sessionIdle"`
	KeepAlive           time.Duration `yaml:"keepAlive"`
	ConversationHeaders []string      `yaml:"conversationHeaders"`
	RegistrationTTL     time.Duration `yaml:"registrationTtl"`
	DiscoveryInterval   time.Duration `yaml:"discoveryInterval"`
	RefreshConcurrency  int           `yaml:"refreshConcurrency"`
	DrainDelay          time.Duration `yaml:"drainDelay"`
	DrainTimeout        time.Duration `yaml:"drainTimeout"`

	Servers       []Server       `yaml:"servers"`
	AgentServers  []AgentServer  `yaml:"agentServers"`
	Conversations []Conversation `yaml:"conversations"`
}

// Server is one backend MCP server behind one path of the sidecar.
type Server struct {
	Name      string   `yaml:"name"`
	Path      string   `yaml:"path"`
	Upstream  *url.URL `yaml:"upstream"`
	Transport string   `yaml:"transport"`
	Command   []string `yaml:"command"`
	Shared    bool     `yaml:"shared"` // one process of Command for all sessions
	Directory string   `yaml:"directory,path"`
	// Environment is added to the sidecar's own for Command.
	Environment map[string]string `yaml:"environment"`
	Health      string            `yaml:"health"`
	Probe       Probe             `yaml:"probe"`
	Identity    Identity          `yaml:"identity"`
	Hold        time.Duration     `yaml:"hold"`
	HoldCall    time.Duration     `yaml:"holdCall"`
	Settle      time.Duration     `yaml:"settle"`
	Watch       []string          `yaml:"watch,path"`

	ShrinkGrace  time.Duration `yaml:"shrinkGrace"`
	EmptyGrace   time.Duration `yaml:"emptyGrace"`
	Replay       string        `yaml:"replay"`
	IncludeMeta  bool          `yaml:"includeMeta"`
	MaxTools     int           `yaml:"maxTools"`
	MaxListBytes int64         `yaml:"maxListBytes"`
}

// Probe says how a backend is looked at.
type Probe struct {
	Interval       time.Duration `yaml:"interval"`
	Timeout        time.Duration `yaml:"timeout"`
	ConnectTimeout time.Duration `yaml:"connectTimeout"`
	ListInterval   time.Duration `yaml:"listInterval"`
	ListTimeout    time.Duration `yaml:"listTimeout"`
	Fails          int           `yaml:"fails"`
	Passes         int           `yaml:"passes"`
	HeadersFile    string        `yaml:"headersFile,path"`
}

// Identity names what tells one process of the backend from the next.
type Identity struct {
	Header  string `yaml:"header"`
	PIDFile string `yaml:"pidFile,path"`
}

// AgentServer is one agent server, or all those that its pattern allows.
type AgentServer struct {
	Name              string `yaml:"name"`
	URL               string `yaml:"url"`
	APIKeyFile        string `yaml:"apiKeyFile,path"`
	RegisterTokenFile string `yaml:"registerTokenFile,path"`
	CAFile            string `yaml:"caFile,path"`
	CertFile          string `yaml:"certFile,path"` // what the sidecar shows, with KeyFile
	KeyFile           string `yaml:"keyFile,path"`
	Discover          bool   `yaml:"discover"`
	Concurrency       int    `yaml:"concurrency"`
	RefreshPath       string `yaml:"refreshPath"`
	// IdleAfter is the time after which the agent server forgets the tools of an
	// idle conversation by itself; 0 is never.
	IdleAfter time.Duration `yaml:"idleAfter"`
}

// Conversation is a registration that the operator wrote down.
type Conversation struct {
	ID          string   `yaml:"id"`
	AgentServer string   `yaml:"agentServer"`
	Servers     []string `yaml:"servers"`
}

// Values of Config.ListenTransport.
const (
	ListenOwn      = "own"      // the sidecar's own server, see package http1
	ListenStandard = "standard" // that of net/http
)

// Values of Config.UpstreamTransport.
const (
	UpstreamPool     = "pool"     // the sidecar's own connections
	UpstreamStandard = "standard" // those of net/http
)

// Default returns the configuration of a sidecar that was told nothing. It has
// no server yet.
func Default() Config {
	return Config{
		Listen:              "127.0.0.1:8080",
		OpsListen:           "127.0.0.1:9090",
		AdminListen:         "127.0.0.1:9091",
		State:               "mcp-sidecar.db",
		RedisPrefix:         "mcp-sidecar",
		Hold:                25 * time.Second,
		HoldCall:            50 * time.Second,
		ProbeInterval:       2 * time.Second,
		ProbeTimeout:        time.Second,
		ListInterval:        30 * time.Second,
		Settle:              300 * time.Millisecond,
		RefreshOn:           "schema",
		LogFormat:           "auto",
		LogLevel:            slog.LevelInfo,
		ListenTransport:     ListenOwn,
		UpstreamTransport:   UpstreamPool,
		MaxHeld:             1024,
		SessionIdle:         30 * time.Minute,
		KeepAlive:           15 * time.Second,
		ConversationHeaders: []string{"X-OpenHands-ServerConversation-ID"},
		RegistrationTTL:     7 * 24 * time.Hour,
		DiscoveryInterval:   30 * time.Second,
		RefreshConcurrency:  128,
		DrainDelay:          3 * time.Second,
		DrainTimeout:        25 * time.Second,
	}
}

// defaultServer returns the settings of a server that no global setting has.
func defaultServer() Server {
	return Server{
		Transport:    TransportStreamable,
		Probe:        Probe{ConnectTimeout: 5 * time.Second, ListTimeout: 10 * time.Second, Fails: 3, Passes: 1},
		ShrinkGrace:  2 * time.Second,
		EmptyGrace:   30 * time.Second,
		Replay:       "hints",
		MaxTools:     10_000,
		MaxListBytes: 16 << 20,
	}
}

// defaultAgentServer returns the settings of an agent server that was given by
// its address alone.
func defaultAgentServer() AgentServer {
	return AgentServer{Discover: true, Concurrency: 4, IdleAfter: 20 * time.Minute}
}
