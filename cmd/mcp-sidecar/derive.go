package main

import (
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/health"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
)

// What the parts are told of the configuration, which was validated.

// pipedURL stands for the address of a stdio backend, which has none.
const pipedURL = "http://localhost/"

// proxyConfig takes from the plan what carries the requests of stdio backends.
// agents is the address that is bound, which a reload doesn't change.
func proxyConfig(cfg *config.Config, p *plan, agents string) proxy.Config {
	pc := proxy.DefaultConfig()
	pc.LoopbackListener = config.IsLoopback(agents)
	pc.AllowedOrigins = cfg.AllowedOrigin
	for _, s := range cfg.PublicURL {
		if u, err := url.Parse(s); err == nil {
			pc.PublicURLs = append(pc.PublicURLs, u)
		}
	}
	pc.MaxHeld, pc.SessionIdle, pc.KeepAlive, pc.ConversationHeaders = cfg.MaxHeld, cfg.SessionIdle, cfg.KeepAlive, cfg.ConversationHeaders
	pc.StandardTransport = cfg.UpstreamTransport == config.UpstreamStandard
	for i, s := range cfg.Servers {
		pc.Servers = append(pc.Servers, proxy.Server{
			Name: s.Name, Path: s.Path, Upstream: s.Upstream, Transport: s.Transport,
			Hold: s.Hold, HoldCall: s.HoldCall, Replay: s.Replay, Via: p.list[i].via,
		})
	}
	return pc
}

func registryConfig(cfg *config.Config) conversation.RegistryConfig {
	rc := conversation.DefaultRegistryConfig()
	rc.TTL = cfg.RegistrationTTL
	rc.Servers = cfg.ServerNames()
	rc.AgentServers = map[string]conversation.AgentServerSettings{}
	for _, a := range cfg.AgentServers {
		rc.AgentServers[a.Name] = conversation.AgentServerSettings{IdleAfter: a.IdleAfter, Pattern: a.IsPattern()}
	}
	return rc
}

// healthConfig is everything of a server that its checker depends on, but for
// where its headers are and what was known of it before.
func healthConfig(s config.Server) health.Config {
	hc := health.DefaultConfig()
	hc.Server, hc.URL, hc.HealthURL, hc.Transport = s.Name, s.Upstream, healthURL(s), s.Transport
	hc.ProbeInterval, hc.ProbeTimeout, hc.ConnectTimeout = s.Probe.Interval, s.Probe.Timeout, s.Probe.ConnectTimeout
	hc.ListInterval, hc.ListTimeout = s.Probe.ListInterval, s.Probe.ListTimeout
	hc.Fails, hc.Passes = s.Probe.Fails, s.Probe.Passes
	hc.Settle, hc.ShrinkGrace, hc.EmptyGrace = s.Settle, s.ShrinkGrace, s.EmptyGrace
	hc.MaxTools, hc.MaxListBytes, hc.IncludeMeta = s.MaxTools, s.MaxListBytes, s.IncludeMeta
	hc.IdentityHeader, hc.PIDFile, hc.Watch = s.Identity.Header, s.Identity.PIDFile, s.Watch
	if s.Transport == config.TransportStdio {
		hc.URL, _ = url.Parse(pipedURL)
		hc.Watch = nil // those files replace the process
	}
	return hc
}

// healthURL resolves the health path against the backend's address.
func healthURL(s config.Server) *url.URL {
	if s.Health == "" {
		return nil
	}
	u, err := url.Parse(s.Health)
	if err != nil {
		return nil
	}
	if s.Upstream != nil && strings.HasPrefix(s.Health, "/") {
		u = s.Upstream.ResolveReference(u)
	}
	return u
}

func toolNames(g conversation.Generation) []string {
	return slices.Sorted(maps.Keys(g.Tools))
}
