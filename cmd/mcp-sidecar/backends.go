package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/tracing"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/health"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
	"github.com/mcp-sidecar/mcp-sidecar/proxy/stdio"
)

// backends are the servers of the present configuration.
type backends struct {
	log           *slog.Logger
	metrics       *health.Metrics
	registry      *conversation.Registry
	group         *conversation.Group // nil when this is the only replica
	proxy         *proxy.Proxy
	wake          func() // the reconciler should look again
	discover      func() // there is a new generation: discovery should look again
	feed          *admin.Feed
	tracing       *tracing.Tracing // may be nil
	version       string
	refreshOnSwap func() bool
	wanted        chan *plan
	ended         chan struct{} // closed when Run has returned

	mu       sync.RWMutex
	list     []*backend // in the order of the configuration
	byName   map[string]*backend
	quiesced bool
}

// newBackends returns no backends yet. Its proxy, wake and discover are to be set
// before they run.
func newBackends(a *app) *backends {
	bs := &backends{
		log: a.log, metrics: health.NewMetrics(a.reg), registry: a.registry, feed: a.feed, tracing: a.tracing, version: a.build.Version,
		refreshOnSwap: func() bool { return a.cfg.Load().RefreshOn == "swap" },
		wanted:        make(chan *plan), ended: make(chan struct{}), byName: map[string]*backend{},
	}
	if a.replicas != nil {
		bs.group = a.replicas.group
	}
	return bs
}

// plan is another list of backends to be had: those that stay the same as they
// are, the others new and not started.
type plan struct {
	servers []config.Server
	list    []*backend // one for each server
	done    chan struct{}
}

// plan makes a plan of another configuration. Nothing changes yet.
func (bs *backends) plan(servers []config.Server) (*plan, error) {
	p := &plan{servers: servers, done: make(chan struct{})}
	var errs []error
	for _, s := range servers {
		if old := bs.named(s.Name); old != nil && old.same(s) {
			p.list = append(p.list, old)
			continue
		}
		b, err := bs.newBackend(s)
		p.list = append(p.list, b)
		errs = append(errs, err)
	}
	return p, errors.Join(errs...)
}

func (bs *backends) newBackend(s config.Server) (*backend, error) {
	b := &backend{
		all: bs, name: s.Name, watched: healthConfig(s), headers: s.Probe.HeadersFile, process: processOf(s), server: s,
		done: make(chan struct{}),
	}
	deps := health.Deps{Logger: bs.log, Metrics: bs.metrics, Notify: b.onEvent}
	if s.Transport == config.TransportStdio {
		sc := stdio.DefaultConfig()
		sc.Command, sc.Dir, sc.Env, sc.Shared, sc.Watch, sc.Version = s.Command, s.Directory, s.Environment, s.Shared, s.Watch, bs.version
		var err error
		b.bridge, err = stdio.New(sc, stdio.Deps{
			Logger: bs.log.With("server", s.Name),
			OnSwap: func() { b.checker.Suspect("the stdio processes are being replaced") },
		})
		if err != nil {
			return nil, fmt.Errorf("server %q: %w", s.Name, err)
		}
		b.via, deps.Transport = proxy.RoundTripper(b.bridge), b.bridge
	}
	hc := b.watched
	if b.headers != "" {
		hc.Headers = headersFile(b.headers)
	}
	hc.ClientVersion = bs.version
	if g, ok := bs.registry.Generation(s.Name); ok {
		hc.LastHash, hc.LastTools = g.Hash, toolNames(g)
	}
	var err error
	b.checker, err = health.New(hc, deps)
	return b, err
}

// apply puts a plan into effect while Run runs, and returns when that is done.
func (bs *backends) apply(ctx context.Context, p *plan) error {
	select {
	case bs.wanted <- p:
	case <-bs.ended:
		return errors.New("the sidecar is stopping")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	<-p.done
	return nil
}

// publish makes a plan the present state.
func (bs *backends) publish(p *plan) {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.list = p.list
	bs.byName = make(map[string]*backend, len(p.list))
	for i, b := range p.list {
		bs.byName[b.name] = b
		b.see()
		b.checker.SetQuiesced(bs.quiesced)
		b.mu.Lock()
		b.server = p.servers[i]
		b.mu.Unlock()
	}
}

// Run runs the checkers until ctx ends.
func (bs *backends) Run(ctx context.Context) error {
	defer close(bs.ended)
	checkers, ctx := errgroup.WithContext(ctx)
	start := func(b *backend) {
		var own context.Context
		own, b.stop = context.WithCancel(ctx)
		checkers.Go(func() error { return b.run(own) })
	}
	for _, b := range bs.present() {
		start(b)
	}
	for {
		select {
		case <-ctx.Done():
			return checkers.Wait()
		case p := <-bs.wanted:
			bs.replace(p, start)
			close(p.done)
		}
	}
}

// replace ends the backends that aren't in the plan and starts those that are new
// in it. A checker has ended before its successor begins.
func (bs *backends) replace(p *plan, start func(*backend)) {
	old := bs.present()
	for _, b := range old {
		if slices.Contains(p.list, b) {
			continue
		}
		b.stop()
		<-b.done
		if i := slices.IndexFunc(p.list, func(n *backend) bool { return n.name == b.name }); i >= 0 {
			p.list[i].succeed(b)
		} else {
			bs.metrics.Forget(b.name)
		}
	}
	bs.publish(p)
	for _, b := range p.list {
		if !slices.Contains(old, b) {
			start(b)
		}
	}
}

func (bs *backends) present() []*backend {
	bs.mu.RLock()
	defer bs.mu.RUnlock()
	return slices.Clone(bs.list)
}

func (bs *backends) named(name string) *backend {
	bs.mu.RLock()
	defer bs.mu.RUnlock()
	return bs.byName[name]
}

// suspect passes on what the proxy saw.
func (bs *backends) suspect(server, reason string) {
	if b := bs.named(server); b != nil {
		b.checker.Suspect(reason)
	}
}

// settled tells whether a server's backend has settled and its traffic flows.
func (bs *backends) settled(server string) bool {
	b := bs.named(server)
	return b != nil && b.settled()
}

// quiesce freezes detection.
func (bs *backends) quiesce() {
	bs.mu.Lock()
	defer bs.mu.Unlock()
	bs.quiesced = true
	for _, b := range bs.list {
		b.checker.SetQuiesced(true)
	}
}

// Servers implements [admin.Servers].
func (bs *backends) Servers() []admin.Server {
	stats := bs.proxy.Stats()
	out := []admin.Server{}
	for _, b := range bs.present() {
		out = append(out, withStats(b.snapshot(), stats))
	}
	return out
}

// Server implements [admin.Servers].
func (bs *backends) Server(name string) (admin.Server, error) {
	b := bs.named(name)
	if b == nil {
		return admin.Server{}, fmt.Errorf("%w: %.70q", admin.ErrUnknownServer, name)
	}
	s := withStats(b.snapshot(), bs.proxy.Stats())
	s.LastChange = b.lastChange()
	return s, nil
}

// Check implements [admin.Servers].
func (bs *backends) Check(ctx context.Context, name string) (admin.Server, error) {
	b := bs.named(name)
	if b == nil {
		return admin.Server{}, fmt.Errorf("%w: %.70q", admin.ErrUnknownServer, name)
	}
	if _, err := b.checker.Check(ctx); err != nil {
		return admin.Server{}, err
	}
	return withStats(b.snapshot(), bs.proxy.Stats()), nil
}

func withStats(s admin.Server, stats []proxy.ServerStats) admin.Server {
	for _, st := range stats {
		if st.Name == s.Name {
			s.Sessions, s.Streams, s.Held = st.Sessions, st.Streams, st.Held
		}
	}
	return s
}
