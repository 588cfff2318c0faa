package main

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/agents"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/discovery"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
)

// conversations is the registry as traffic and registrations use it: what they
// say of agent servers is looked at first.
type conversations struct {
	*conversation.Registry

	agents *agents.Agents
}

func (a *app) conversations() conversations { return conversations{a.registry, a.agents} }

// Seen implements [proxy.Conversations].
func (c conversations) Seen(s conversation.Sighting) { c.agents.Seen(s) }

// Register implements [admin.Conversations].
func (c conversations) Register(ctx context.Context, r conversation.Registration) (conversation.Conversation, bool, error) {
	return c.agents.Register(ctx, r)
}

// makeAgents makes everything that calls agent servers.
func (a *app) makeAgents(ctx context.Context, cfg *config.Config) error {
	nc := notify.DefaultConfig()
	nc.Concurrency = cfg.RefreshConcurrency
	nm := notify.NewMetrics(a.reg)
	nd := notify.Deps{Registry: a.registry, Ready: a.backends.settled, OnEvent: a.publishRefresh, Trace: a.tracing.Refresh(), Logger: a.log, Metrics: nm}
	if a.replicas != nil {
		nd.Claims, nd.Ready = a.replicas, a.refreshable
		nc.ObserveGrace = sharedObserveGrace
	}
	var err error
	a.notifier, err = notify.New(nc, nil, nd)
	if err != nil {
		return err
	}
	dm := discovery.NewMetrics(a.reg)
	a.discoverer, err = discovery.New(discoveryConfig(cfg), newMatcher(cfg, a.addr("agents")), discovery.Deps{
		Register: func(ctx context.Context, r conversation.Registration) error {
			_, _, err := a.agents.Register(ctx, r)
			return err
		},
		Logger: a.log, Metrics: dm,
	})
	if err != nil {
		return err
	}
	d := agents.Deps{
		Logger: a.log, Registry: a.registry, Reconciler: a.notifier, Discoverer: a.discoverer, ReadKey: secretFile, Own: a.ownAddresses,
		Init: func(name string) {
			nm.InitAgentServer(name)
			dm.InitAgentServer(name)
		},
	}
	if cfg.SessionKeyFile != "" {
		d.Keep = &agents.Keeper{Blobs: a.store, Sealer: a.keys, TTL: cfg.RegistrationTTL}
	}
	a.agents = agents.New(d)
	if len(cfg.PublicURL) == 0 && !config.IsLoopback(a.addr("agents")) && discovers(cfg) {
		a.log.Info("only conversations that name this machine's loopback address are discovered: set --public-url to the URL that agents use")
	}
	return a.agents.Configure(ctx, cfg)
}

func discovers(cfg *config.Config) bool {
	for _, s := range cfg.AgentServers {
		if s.Discover {
			return true
		}
	}
	return false
}

// ownAddresses returns where the listeners are bound.
func (a *app) ownAddresses() []netip.AddrPort {
	own := make([]netip.AddrPort, 0, len(a.addrs))
	for _, addr := range a.addrs {
		if ap, err := netip.ParseAddrPort(addr.String()); err == nil {
			own = append(own, ap)
		}
	}
	return own
}

func discoveryConfig(cfg *config.Config) discovery.Config {
	dc := discovery.DefaultConfig()
	dc.Interval = cfg.DiscoveryInterval
	dc.FullInterval = max(dc.FullInterval, dc.Interval)
	if ttl := cfg.RegistrationTTL; ttl > 0 { // a full run renews all registrations
		dc.FullInterval = min(dc.FullInterval, max(ttl/3, time.Second))
	}
	return dc
}

func newMatcher(cfg *config.Config, agents string) *discovery.Matcher {
	return discovery.NewMatcher(publicURLs(cfg, agents), paths(cfg))
}

func paths(cfg *config.Config) map[string]string {
	paths := make(map[string]string, len(cfg.Servers))
	for _, s := range cfg.Servers {
		paths[s.Name] = s.Path
	}
	return paths
}

// publicURLs returns the URLs that agents use for the sidecar. If the operator
// gave none, these are the ones on this machine; agents is the address that is
// bound.
func publicURLs(cfg *config.Config, agents string) []*url.URL {
	var urls []*url.URL
	for _, s := range cfg.PublicURL {
		if u, err := url.Parse(s); err == nil {
			urls = append(urls, u)
		}
	}
	if len(cfg.PublicURL) > 0 {
		return urls
	}
	host, port, err := net.SplitHostPort(agents)
	if err != nil {
		return nil
	}
	scheme := "http"
	if cfg.TLSCertFile != "" {
		scheme = "https"
	}
	hosts := []string{host}
	if ip, err := netip.ParseAddr(host); err == nil && (ip.Unmap().IsLoopback() || ip.IsUnspecified()) {
		hosts = []string{"127.0.0.1", "localhost", "::1"}
	}
	for _, h := range hosts {
		urls = append(urls, &url.URL{Scheme: scheme, Host: net.JoinHostPort(h, port)})
	}
	return urls
}
