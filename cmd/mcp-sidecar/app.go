package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/agents"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/tracing"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/discovery"
	"github.com/mcp-sidecar/mcp-sidecar/metrics"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
)

// Bounds of the end, besides what the configuration says.
const (
	rollbackTimeout = 10 * time.Second
	closingTimeout  = 15 * time.Second // for everything after the drain
)

// appOptions are what an app is given besides its configuration.
type appOptions struct {
	Logger *slog.Logger
	Level  *slog.LevelVar // follows the configuration; optional
	// Load reads the configuration again. Nil: it can't be reloaded.
	Load func() (*config.Config, error)
	// File is the configuration file, "" without one. It is read again when it changes.
	File string
}

// app is one running sidecar. Several can live in one process. It is started
// and stopped once.
type app struct {
	log     *slog.Logger
	level   *slog.LevelVar
	load    func() (*config.Config, error)
	file    string // with the configuration
	build   metrics.Build
	created time.Time

	cfg       atomic.Pointer[config.Config]
	configErr atomic.Pointer[string] // why the file that was read last isn't in force
	reloading sync.Mutex             // one reload at a time

	running   atomic.Bool // everything is started
	quiescing atomic.Bool
	quiesced  atomic.Pointer[time.Time] // since when
	stopping  atomic.Bool

	mu       sync.Mutex // guards phase and cleanups, and orders start and stop
	phase    phase
	cleanups cleanups
	failed   chan error // the first runner that ended by itself

	addrs map[string]net.Addr // by listener; set before running

	reg      *prometheus.Registry
	metrics  *appMetrics
	feed     *admin.Feed
	keys     *proxy.Keyring
	store    conversation.Store
	stored   *conversation.Metrics // of the store and what is in it
	registry *conversation.Registry
	replicas *replicas // nil when this is the only one
	proxy    *proxy.Proxy
	notifier *notify.Reconciler
	// endRefreshes begins no more refreshes and ends the notifier, which waits a moment for those that run.
	endRefreshes context.CancelFunc
	backends     *backends

	listenTokens listenTokens
	tracing      *tracing.Tracing // nil: no spans are sent

	agents     *agents.Agents
	discoverer *discovery.Discoverer
}

type phase int

const (
	phaseNew phase = iota
	phaseStarted
	phaseStopped
)

// newApp returns an app that has done nothing yet.
func newApp(cfg *config.Config, o appOptions) *app {
	a := &app{
		log: o.Logger, level: o.Level, load: o.Load, file: o.File, build: metrics.ReadBuild(), created: time.Now(),
		failed: make(chan error, 1), addrs: map[string]net.Addr{}, feed: admin.NewFeed(),
	}
	if a.log == nil {
		a.log = slog.New(slog.DiscardHandler)
	}
	if a.level == nil {
		a.level = &slog.LevelVar{}
	}
	a.cleanups.log = a.log
	a.cfg.Store(cfg)
	return a
}

// start sets everything up and returns when the sidecar serves. If something
// can't be set up, everything is undone. The values of ctx are kept, its end
// isn't: see stop.
func (a *app) start(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != phaseNew {
		return errors.New("the sidecar was started before")
	}
	a.phase = phaseStarted
	if err := a.setUp(context.WithoutCancel(ctx)); err != nil {
		a.phase = phaseStopped
		a.stopping.Store(true)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), rollbackTimeout)
		defer cancel()
		return errors.Join(err, a.cleanups.run(ctx))
	}
	a.running.Store(true)
	a.replicas.setReady(true)
	a.log.Info("started", "version", a.build.Version, "servers", len(a.cfg.Load().Servers), "agent_servers", len(a.cfg.Load().AgentServers))
	return nil
}

// stop ends the sidecar: first it turns not ready, and for delay serves on, so
// that others notice; then running calls finish and everything is undone. If ctx
// ends before that, what is left is cut off. Stopping again, or without a start,
// is harmless.
func (a *app) stop(ctx context.Context, delay time.Duration) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.phase != phaseStarted {
		a.phase = phaseStopped
		return nil
	}
	a.phase = phaseStopped
	a.log.Info("stopping", "delay", delay)
	a.stopping.Store(true)
	a.replicas.setReady(false)
	a.backends.quiesce() // what ends from now on is no swap
	a.endRefreshes()     // now, so that the wait for those that hang adds nothing to the drain
	if delay > 0 {
		t := time.NewTimer(delay)
		defer t.Stop()
		select {
		case <-t.C:
		case <-ctx.Done():
		}
	}
	err := a.cleanups.run(ctx)
	if err == nil {
		a.log.Info("stopped")
	}
	return err
}

// drainDelay is how long to serve on when the end comes. Who was told to go
// elsewhere by quiescing had time since then.
func (a *app) drainDelay() time.Duration {
	delay := a.cfg.Load().DrainDelay
	if since := a.quiesced.Load(); since != nil {
		delay -= time.Since(*since)
	}
	return max(0, delay)
}

// stopTimeout bounds the whole of stop.
func (a *app) stopTimeout(delay time.Duration) time.Duration {
	return delay + a.cfg.Load().DrainTimeout + closingTimeout
}

// addr is where a listener is bound: agents, ops, admin or register.
func (a *app) addr(name string) string {
	if addr, ok := a.addrs[name]; ok {
		return addr.String()
	}
	return ""
}

// spawn runs something until the app stops. If it ends before, the app fails. The returned function ends it sooner, once
// the app is stopping.
func (a *app) spawn(ctx context.Context, name string, run func(context.Context) error) (end context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := run(ctx)
		if a.stopping.Load() && (err == nil || errors.Is(err, context.Canceled)) {
			return
		}
		if err == nil {
			err = errors.New("it ended by itself")
		}
		select {
		case a.failed <- fmt.Errorf("%s: %w", name, err):
		default: // another failed before
		}
	}()
	a.cleanups.add(name, func(stopCtx context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-stopCtx.Done():
			return context.Cause(stopCtx)
		}
	})
	return cancel
}

// live tells the liveness probe whether the process does its work. What it waits
// for elsewhere is no reason to restart it.
func (a *app) live() error {
	if !a.running.Load() || a.stopping.Load() {
		return nil
	}
	last := a.notifier.LastRun()
	if last.Before(a.created) {
		last = a.created
	}
	if since := time.Since(last); since > reconcileStall {
		return fmt.Errorf("the reconcile loop has not run for %s", since.Round(time.Second))
	}
	return nil
}

// reconcileStall is the time after which the reconcile loop, which looks at
// everything every 30 seconds, is taken for stuck.
const reconcileStall = 2 * time.Minute

// ready tells the readiness probe whether new clients should come here.
func (a *app) ready() error {
	switch {
	case a.stopping.Load():
		return errors.New("stopping")
	case a.quiescing.Load():
		return errors.New("quiescing")
	}
	return a.hasStarted()
}

func (a *app) hasStarted() error {
	if !a.running.Load() {
		return errors.New("starting")
	}
	return nil
}
