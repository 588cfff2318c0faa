package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// Config says how often to look, and how far.
type Config struct {
	// Interval is the time between two runs at an agent server, give or take a fifth.
	Interval time.Duration
	// FullInterval is the time after which a run reads everything, and so renews all registrations. Others end where nothing changed since the
	// run before.
	FullInterval time.Duration
	// MinBackoff and MaxBackoff bound the interval while runs fail; it doubles with each.
	MinBackoff, MaxBackoff time.Duration
	Limits
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Interval: 30 * time.Second, FullInterval: 10 * time.Minute, MinBackoff: time.Second, MaxBackoff: 5 * time.Minute,
		Limits: DefaultLimits(),
	}
}

func (c Config) validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"Interval", int64(c.Interval)},
		{"FullInterval", int64(c.FullInterval)},
		{"MinBackoff", int64(c.MinBackoff)},
		{"MaxBackoff", int64(c.MaxBackoff)},
		{"Timeout", int64(c.Timeout)},
		{"MaxPages", int64(c.MaxPages)},
		{"MaxPageBytes", c.MaxPageBytes},
	} {
		if f.value <= 0 {
			errs = append(errs, fmt.Errorf("%s must be greater than 0", f.name))
		}
	}
	return errors.Join(errs...)
}

// Target is an agent server to look at. Two targets are the same when they are equal; the Client must be comparable.
type Target struct {
	conversation.Instance

	Client Client
}

// Deps is what a Discoverer works with.
type Deps struct {
	// Register registers a conversation that was found, or renews its registration. It is required.
	Register func(context.Context, conversation.Registration) error
	Logger   *slog.Logger // nil is silent
	Metrics  *Metrics     // nil is unregistered
}

// Discoverer looks for conversations at agent servers. Its methods are safe for concurrent use.
type Discoverer struct {
	cfg      atomic.Pointer[Config]
	register func(context.Context, conversation.Registration) error
	log      *slog.Logger
	metrics  *Metrics
	matcher  atomic.Pointer[Matcher]
	changed  chan struct{} // the targets did

	mu      sync.Mutex
	targets map[string]Target // by name
	running map[string]*poller
}

// New returns a discoverer without targets. It does nothing before Run.
func New(cfg Config, m *Matcher, d Deps) (*Discoverer, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configuring discovery: %w", err)
	}
	if d.Register == nil {
		return nil, errors.New("configuring discovery: Register is required")
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Metrics == nil {
		d.Metrics = NewMetrics(nil)
	}
	disco := &Discoverer{
		register: d.Register, log: d.Logger.With("component", "discovery"), metrics: d.Metrics,
		changed: make(chan struct{}, 1), running: make(map[string]*poller),
	}
	disco.matcher.Store(m)
	disco.cfg.Store(&cfg)
	return disco, nil
}

// SetConfig replaces the configuration, and has everything looked at soon, so that it counts at once.
func (d *Discoverer) SetConfig(cfg Config) error {
	if err := cfg.validate(); err != nil {
		return fmt.Errorf("configuring discovery: %w", err)
	}
	d.cfg.Store(&cfg)
	d.Wake()
	return nil
}

// SetTargets replaces the agent servers. Those that stay go on as they are, the others end or begin with a run.
func (d *Discoverer) SetTargets(targets []Target) {
	byName := make(map[string]Target, len(targets))
	for _, t := range targets {
		byName[t.Name()] = t
		d.metrics.InitAgentServer(t.AgentServer)
	}
	d.mu.Lock()
	d.targets = byName
	d.mu.Unlock()
	notify(d.changed)
}

// Matcher returns what tells what a conversation must name.
func (d *Discoverer) Matcher() *Matcher { return d.matcher.Load() }

// SetMatcher replaces what a conversation must name, and has everything looked at anew.
func (d *Discoverer) SetMatcher(m *Matcher) {
	d.matcher.Store(m)
	d.Wake()
}

// Wake has all agent servers looked at soon. It never blocks.
func (d *Discoverer) Wake() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range d.running {
		notify(p.wake)
	}
}

func notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is on already
	}
}

// Run looks at the agent servers until ctx ends.
func (d *Discoverer) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for {
		d.reconcile(ctx, &all)
		select {
		case <-d.changed:
		case <-ctx.Done():
			all.Wait()
			return nil
		}
	}
}

// reconcile ends and begins pollers until there is one for each target.
func (d *Discoverer) reconcile(ctx context.Context, all *sync.WaitGroup) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, p := range d.running {
		if d.targets[name] != p.target {
			p.stop()
			delete(d.running, name)
		}
	}
	for name, t := range d.targets {
		if d.running[name] != nil {
			continue
		}
		own, stop := context.WithCancel(ctx)
		p := &poller{d: d, target: t, wake: make(chan struct{}, 1), stop: stop, log: d.log.With("agent_server", name)}
		d.running[name] = p
		all.Go(func() { p.run(own) })
	}
}

// spread returns a wait that keeps many agent servers from being asked, and from answering, at once.
func (d *Discoverer) spread() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return rand.N(time.Duration(len(d.targets))*2*time.Millisecond + 1) //nolint:gosec // spreads load, protects nothing
}
