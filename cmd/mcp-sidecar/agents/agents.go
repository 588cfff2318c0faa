package agents

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/discovery"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
)

const (
	// maxInstances bounds how many agent servers behind patterns are known.
	maxInstances = 10_000
	// keptUnused is how long one is known that has no conversation.
	keptUnused = time.Hour
	// sweepInterval is how often those are looked for whose time is over.
	sweepInterval = time.Minute
	// askTimeout bounds one question to an agent server.
	askTimeout = 10 * time.Second
	// claimPause is the least time between two trials of the same kind.
	claimPause = 30 * time.Second
	// warnPause is the least time between two warnings about refused claims.
	warnPause = time.Minute
	// maxClaims bounds how many conversations are remembered that somebody else
	// claimed.
	maxClaims = 10_000
	// maxQuestions is how many questions are under way at once, and maxQueued how
	// many more may wait. What is too much is dropped: traffic makes its claims again.
	maxQuestions = 64
	maxQueued    = 1024
)

// Reconciler is the part of [notify.Reconciler] that is needed here.
type Reconciler interface {
	SetAgentServers(servers []notify.AgentServer) error
	PutAgentServer(s notify.AgentServer) error
	DropAgentServer(name string)
}

// Discoverer is the part of [discovery.Discoverer] that is needed here.
type Discoverer interface {
	SetTargets(targets []discovery.Target)
}

// Deps is what Agents works with.
type Deps struct {
	Logger     *slog.Logger // nil is silent
	Registry   *conversation.Registry
	Reconciler Reconciler
	Discoverer Discoverer
	// Keep keeps keys in the store. Nil keeps them in memory only.
	Keep *Keeper
	// ReadKey returns a function that reads the key file of an agent server.
	ReadKey func(file string) func() (string, error)
	// Own returns the addresses of the sidecar's own listeners, which no agent
	// server can have.
	Own func() []netip.AddrPort
	// Init makes the metrics of an agent server of the configuration. Optional.
	Init func(name string)
}

// Agents knows the agent servers. Its methods are safe for concurrent use. Call
// Configure first, and Run for as long as it is used.
type Agents struct {
	Deps

	work chan func(context.Context)

	configuring sync.Mutex // one change of what is known at a time; taken before mu

	mu       sync.RWMutex
	cfg      *config.Config
	known    map[conversation.Instance]*agent
	meeting  map[conversation.Instance]bool
	spelled  map[string]conversation.Instance // of known ones, as requests name them
	claims   map[conversation.ID]time.Time    // last trials
	warnedAt time.Time
}

// agent is one agent server that can be called. Its other fields are guarded by
// Agents.mu.
type agent struct {
	conversation.Instance

	seen atomic.Int64 // when a request named it last, in seconds

	cfg      config.AgentServer
	key      string // that came with a request, "" if none did
	keptAt   time.Time
	server   notify.AgentServer
	client   *notify.AgentClient
	trying   bool   // another key
	triedKey string // the last one that was not accepted
	triedAt  time.Time
}

// New returns an Agents that knows none.
func New(d Deps) *Agents {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	d.Logger = d.Logger.With("component", "agents")
	return &Agents{
		Deps: d, work: make(chan func(context.Context), maxQueued), cfg: &config.Config{},
		known: map[conversation.Instance]*agent{}, meeting: map[conversation.Instance]bool{},
		spelled: map[string]conversation.Instance{}, claims: map[conversation.ID]time.Time{},
	}
}

// Configure puts the agent servers of a configuration in force, and those behind
// its patterns that have conversations. What is known of those that stay is kept.
func (a *Agents) Configure(ctx context.Context, cfg *config.Config) error {
	a.configuring.Lock()
	defer a.configuring.Unlock()
	var all []conversation.Instance
	for _, s := range cfg.AgentServers {
		if a.Init != nil {
			a.Init(s.Name)
		}
		if !s.IsPattern() {
			all = append(all, conversation.Instance{AgentServer: s.Name})
		}
	}
	a.mu.RLock()
	for at := range a.known {
		if at.URL != "" {
			all = append(all, at)
		}
	}
	a.mu.RUnlock()
	for at := range a.Registry.Instances() {
		all = append(all, at)
	}

	known := make(map[conversation.Instance]*agent, len(all))
	var servers []notify.AgentServer
	for _, at := range all {
		if known[at] != nil || !a.allowed(cfg, at) {
			continue
		}
		a.mu.RLock()
		old := a.known[at]
		a.mu.RUnlock()
		ag, err := a.newAgent(ctx, cfg, at, old)
		if err != nil {
			return err
		}
		known[at] = ag
		servers = append(servers, ag.server)
	}
	if err := a.Reconciler.SetAgentServers(servers); err != nil {
		return err
	}
	a.mu.Lock()
	old := a.known
	a.cfg, a.known, a.spelled = cfg, known, map[string]conversation.Instance{}
	a.mu.Unlock()
	a.setTargets()
	for at, ag := range old {
		if known[at] == nil || known[at].client != ag.client {
			ag.client.Close()
		}
	}
	return nil
}

// allowed tells whether the configuration still allows an agent server.
func (a *Agents) allowed(cfg *config.Config, at conversation.Instance) bool {
	if at.URL == "" {
		return true
	}
	found, err := cfg.ResolveAgent(at.URL)
	return err == nil && found == at
}

// newAgent makes an agent server of the configuration, with what is known of the
// old one.
func (a *Agents) newAgent(ctx context.Context, cfg *config.Config, at conversation.Instance, old *agent) (*agent, error) {
	entry := cfg.AgentServerNamed(at.AgentServer)
	if entry == nil {
		return nil, fmt.Errorf("there is no agent server %q", at.AgentServer)
	}
	ag := &agent{Instance: at, cfg: *entry}
	ag.seen.Store(time.Now().Unix())
	if old != nil {
		a.mu.RLock()
		ag.key, ag.keptAt = old.key, old.keptAt
		ag.seen.Store(old.seen.Load())
		same := old.cfg == ag.cfg
		ag.server, ag.client = old.server, old.client
		a.mu.RUnlock()
		if same {
			return ag, nil
		}
	}
	if ag.key == "" && ag.cfg.APIKeyFile == "" {
		ag.key = a.Keep.load(ctx, a.Logger, at)
	}
	return ag, a.connect(ag)
}

// connect makes what calls the agent server with the key that is known now.
func (a *Agents) connect(ag *agent) error {
	s := Callable(ag.cfg, ag.URL, a.ReadKey)
	s.Forbidden = a.isOwn
	if s.APIKey == nil && ag.key != "" {
		s.APIKey = fixed(ag.key)
	}
	c, err := notify.NewAgentClient(s)
	if err != nil {
		return err
	}
	ag.server, ag.client = s, c
	return nil
}

// Callable returns how to call an agent server of the configuration; where that is
// a pattern, the one at a URL. readKey returns a function that reads a key file.
func Callable(entry config.AgentServer, at string, readKey func(file string) func() (string, error)) notify.AgentServer {
	u := entry.Base()
	if entry.IsPattern() {
		u, _ = config.ParseAgentURL(at) // without one, it is refused later
	} else {
		at = ""
	}
	s := notify.DefaultAgentServer(conversation.Instance{AgentServer: entry.Name, URL: at}.Name(), u)
	s.Label, s.CAFile, s.Concurrency = entry.Name, entry.CAFile, entry.Concurrency
	s.CertFile, s.KeyFile = entry.CertFile, entry.KeyFile
	if entry.APIKeyFile != "" {
		s.APIKey = readKey(entry.APIKeyFile)
	}
	if entry.RefreshPath != "" {
		s.RefreshPath = entry.RefreshPath
	}
	return s
}

func fixed(key string) func() (string, error) {
	return func() (string, error) { return key, nil }
}

// isOwn tells whether an address is that of one of the sidecar's listeners.
func (a *Agents) isOwn(to netip.AddrPort) bool {
	if a.Own == nil {
		return false
	}
	return isOwn(to, a.Own(), localAddress)
}

// setTargets tells discovery which agent servers to look at.
func (a *Agents) setTargets() {
	var targets []discovery.Target
	a.mu.RLock()
	for _, ag := range a.known {
		if ag.cfg.Discover {
			targets = append(targets, discovery.Target{Instance: ag.Instance, Client: ag.client})
		}
	}
	a.mu.RUnlock()
	a.Discoverer.SetTargets(targets)
}

// resolve finds the agent server that a request names.
func (a *Agents) resolve(named string) (conversation.Instance, error) {
	a.mu.RLock()
	at, ok := a.spelled[named]
	cfg := a.cfg
	a.mu.RUnlock()
	if ok {
		return at, nil
	}
	at, err := cfg.ResolveAgent(named)
	if err == nil && at.URL != "" && a.ownURL(at.URL) {
		err = config.ErrNotAllowed
	}
	return at, err
}

// ownURL tells whether a URL is that of one of the sidecar's listeners, as far as
// that can be told without resolving names.
func (a *Agents) ownURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil || a.Own == nil {
		return false
	}
	return slices.ContainsFunc(addresses(u), a.isOwn)
}
