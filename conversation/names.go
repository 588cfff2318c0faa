package conversation

import (
	"maps"
	"slices"
	"time"
)

// defaultAgentServer is the agent server of registrations that name none, where several are configured.
const defaultAgentServer = "default"

// server is a server that is configured, or that a conversation or a generation names. Guarded by Registry.mu.
type server struct {
	name       string
	configured bool
	offer      *offer // nil while nothing is known
}

// offers returns what conversations should have of the server, nil if nothing.
func (s *server) offers() *offer {
	if !s.configured {
		return nil
	}
	return s.offer
}

// agentServer is an agent server that is configured, or that a conversation names. Guarded by Registry.mu.
type agentServer struct {
	name       string
	configured bool
	pattern    bool
	idleAfter  time.Duration
}

// configure brings the names up to date with the configuration. mu is held.
func (r *Registry) configure(cfg RegistryConfig) {
	r.cfg = cfg
	for _, s := range r.servers {
		s.configured = false
	}
	for _, name := range cfg.Servers {
		r.serverNamed(name).configured = true
	}
	for _, a := range r.agents {
		a.configured, a.pattern, a.idleAfter = false, false, 0
	}
	for name, settings := range cfg.AgentServers {
		a := r.agentServerNamed(name)
		a.configured, a.pattern, a.idleAfter = true, settings.Pattern, settings.IdleAfter
	}
}

// serverNamed returns the server of that name, configured or not. mu is held.
func (r *Registry) serverNamed(name string) *server {
	s := r.servers[name]
	if s == nil {
		s = &server{name: name}
		r.servers[name] = s
	}
	return s
}

// agentServerNamed returns the agent server of that name, configured or not. mu is held.
func (r *Registry) agentServerNamed(name string) *agentServer {
	a := r.agents[name]
	if a == nil {
		a = &agentServer{name: name}
		r.agents[name] = a
	}
	return a
}

// configuredServer returns a configured server, or *UnknownNameError. mu is held.
func (r *Registry) configuredServer(name string) (*server, error) {
	if s := r.servers[name]; s != nil && s.configured {
		return s, nil
	}
	return nil, &UnknownNameError{Kind: "server", Name: name, Known: slices.Clone(r.cfg.Servers)}
}

// configuredAgentServer returns the configured agent server that is meant by name, which may be empty, or *UnknownNameError. mu is held.
func (r *Registry) configuredAgentServer(name string) (*agentServer, error) {
	if name == "" {
		name = defaultAgentServer
		if len(r.cfg.AgentServers) == 1 {
			for only := range r.cfg.AgentServers {
				name = only
			}
		}
	}
	if a := r.agents[name]; a != nil && a.configured {
		return a, nil
	}
	return nil, &UnknownNameError{Kind: "agent server", Name: name, Known: slices.Sorted(maps.Keys(r.cfg.AgentServers))}
}
