package config

import (
	"fmt"
	"maps"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// validate reports everything that is wrong with the values of an expanded
// configuration.
func (c *Config) validate(r *report) {
	c.validateListeners(r)
	c.validateURLs(r)
	oneOf(r, "refreshOn", c.RefreshOn, "schema", "swap")
	oneOf(r, "logFormat", c.LogFormat, "auto", "text", "json")
	oneOf(r, "listenTransport", c.ListenTransport, ListenOwn, ListenStandard)
	oneOf(r, "upstreamTransport", c.UpstreamTransport, UpstreamPool, UpstreamStandard)
	atLeast(r, "maxHeld", c.MaxHeld, 1)
	positive(r, "sessionIdle", c.SessionIdle)
	positive(r, "keepAlive", c.KeepAlive)
	notNegative(r, "registrationTtl", c.RegistrationTTL)
	positive(r, "discoveryInterval", c.DiscoveryInterval)
	atLeast(r, "refreshConcurrency", c.RefreshConcurrency, 1)
	for i, h := range c.ConversationHeaders {
		if !headerRE.MatchString(h) {
			r.add(indexed(r, "conversationHeaders", i), "want the name of a header, got %q", clip(h))
		}
	}
	notNegative(r, "drainDelay", c.DrainDelay)
	notNegative(r, "drainTimeout", c.DrainTimeout)
	if c.State == "" && c.Redis == "" {
		r.add("state", "must name the file that keeps the registrations")
	}
	c.validateRedis(r)
	c.validateGlobals(r)
	c.validateServers(r)
	c.validateAgentServers(r)
	c.validateConversations(r)
}

// validateGlobals checks what servers inherit where it was set, so that one
// mistake is reported once and not for each server.
func (c *Config) validateGlobals(r *report) {
	notNegative(r, "hold", c.Hold)
	notNegative(r, "holdCall", c.HoldCall)
	positive(r, "probeInterval", c.ProbeInterval)
	positive(r, "probeTimeout", c.ProbeTimeout)
	positive(r, "listInterval", c.ListInterval)
	positive(r, "settle", c.Settle)
	if c.ProbeTimeout > 0 && c.ProbeInterval > 0 && c.ProbeTimeout >= c.ProbeInterval {
		r.add("probeTimeout", "must be shorter than the probe interval (%s), got %s", c.ProbeInterval, c.ProbeTimeout)
	}
	if c.HealthPath != "" {
		validateHealth(r, "healthPath", c.HealthPath)
	}
}

func (c *Config) validateListeners(r *report) {
	type listener struct{ key, addr string }
	all := []listener{{"listen", c.Listen}, {"opsListen", c.OpsListen}, {"adminListen", c.AdminListen}}
	if c.RegisterListen != "" {
		all = append(all, listener{"registerListen", c.RegisterListen})
	}
	seen := map[string]string{}
	for _, l := range all {
		_, port, err := splitListen(l.addr)
		if err != nil {
			r.add(l.key, "%s", err)
			continue
		}
		if other, ok := seen[l.addr]; ok && port != "0" {
			r.add(l.key, "%s is the address of %s too: give each its own port", l.addr, other)
		}
		seen[l.addr] = l.key
	}
	if (c.TLSCertFile == "") != (c.TLSKeyFile == "") {
		key := "tlsKeyFile"
		if c.TLSCertFile == "" {
			key = "tlsCertFile"
		}
		r.add(key, "TLS needs both a certificate and a key file")
	}
	if c.AdminTokenFile == "" && !IsLoopback(c.AdminListen) {
		r.add("adminListen", "%s can be reached from other machines: set --admin-token-file, or listen on 127.0.0.1", c.AdminListen)
	}
	if c.RegisterListen != "" && !slices.ContainsFunc(c.AgentServers, func(a AgentServer) bool { return a.RegisterTokenFile != "" }) {
		r.add("registerListen", "nobody could register: set registerTokenFile at an entry of agentServers")
	}
}

func (c *Config) validateURLs(r *report) {
	for i, s := range c.PublicURL {
		key := indexed(r, "publicUrl", i)
		u, err := parseURL(s)
		if err != nil {
			r.add(key, "%s", err)
			continue
		}
		httpURL(r, key, u)
		if u.RawQuery != "" {
			r.add(key, "must not have a query")
		}
	}
	for i, s := range c.AllowedOrigin {
		u, err := url.Parse(s)
		if err != nil || u.Host == "" || u.Scheme == "" || strings.ContainsAny(u.Host, "*") || u.Scheme+"://"+u.Host != s {
			r.add(indexed(r, "allowedOrigin", i), "want an origin such as https://app.example.com, without a path or wildcard, got %q", clip(s))
		}
	}
}

var headerRE = regexp.MustCompile(`^[A-Za-z0-9-]{1,100}$`)

// names are label values of metrics and parts of paths.
var nameRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

const nameRule = "must be 1 to 63 letters, digits, dots, dashes or underscores, got %q"

func (c *Config) validateServers(r *report) {
	if len(c.Servers) == 0 {
		if r.bad["upstream"] || r.bad["stdio"] {
			return
		}
		r.missing("servers", "no server: give --upstream URL (or --stdio -- COMMAND), or list servers in the configuration file")
		return
	}
	names, paths := map[string]bool{}, map[string]string{}
	for i := range c.Servers {
		s, key := &c.Servers[i], fmt.Sprintf("servers[%d]", i)
		switch {
		case s.Name == "":
			r.missing(key+".name", "each of several servers needs a name")
		case !nameRE.MatchString(s.Name):
			r.add(key+".name", nameRule, clip(s.Name))
		case names[s.Name]:
			r.add(key+".name", "%q is the name of another server too", s.Name)
		}
		names[s.Name] = true
		validateServerPath(r, key+".path", s.Path)
		if other, ok := paths[s.Path]; ok {
			r.add(key+".path", "%s is the path of server %q too: set path to tell them apart", s.Path, other)
		} else {
			paths[s.Path] = s.Name
		}
		c.validateServer(r, key, s)
	}
}

func (c *Config) validateServer(r *report, key string, s *Server) {
	oneOf(r, key+".transport", s.Transport, TransportStreamable, TransportSSE, TransportStdio)
	oneOf(r, key+".replay", s.Replay, "hints", "never")
	stdio := s.Transport == TransportStdio
	switch {
	case stdio && len(s.Command) == 0:
		r.missing(key+".command", "a stdio server needs the command that starts it")
	case stdio && s.Upstream != nil:
		r.add(key+".upstream", "a stdio server has a command and no upstream: remove one of them")
	case !stdio && len(s.Command) > 0:
		r.add(key+".command", "only a server with transport stdio has a command")
	case !stdio && s.Upstream == nil:
		r.missing(key+".upstream", "needs the URL of the backend, such as http://127.0.0.1:9000/mcp")
	case !stdio:
		httpURL(r, key+".upstream", s.Upstream)
	}
	if !stdio && (s.Directory != "" || len(s.Environment) > 0) {
		r.add(key+".environment", "only a server with transport stdio has a directory and an environment")
	}
	for _, name := range slices.Sorted(maps.Keys(s.Environment)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			r.add(key+".environment", "%q can't be the name of a variable", clip(name))
		}
	}
	if len(s.Command) > 0 && s.Command[0] == "" {
		r.add(key+".command", "the command is empty")
	}
	if s.Health != "" && r.isSet(key+".health") {
		validateHealth(r, key+".health", s.Health)
	}
	for _, d := range []struct {
		key   string
		value time.Duration
		zero  bool
	}{
		{".hold", s.Hold, true},
		{".holdCall", s.HoldCall, true},
		{".probe.interval", s.Probe.Interval, false},
		{".probe.timeout", s.Probe.Timeout, false},
		{".probe.connectTimeout", s.Probe.ConnectTimeout, false},
		{".probe.listInterval", s.Probe.ListInterval, false},
		{".probe.listTimeout", s.Probe.ListTimeout, false},
		{".settle", s.Settle, false},
		{".shrinkGrace", s.ShrinkGrace, false},
		{".emptyGrace", s.EmptyGrace, false},
	} {
		switch {
		case !r.isSet(key + d.key): // inherited: reported there
		case d.zero:
			notNegative(r, key+d.key, d.value)
		default:
			positive(r, key+d.key, d.value)
		}
	}
	p := s.Probe
	own := r.isSet(key+".probe.timeout") || r.isSet(key+".probe.interval")
	if own && p.Timeout > 0 && p.Interval > 0 && p.Timeout >= p.Interval {
		at := key + ".probe.timeout"
		if !r.isSet(at) {
			at = key + ".probe.interval"
		}
		r.add(at, "the probe timeout (%s) must be shorter than the probe interval (%s)", p.Timeout, p.Interval)
	}
	atLeast(r, key+".probe.fails", p.Fails, 1)
	atLeast(r, key+".probe.passes", p.Passes, 1)
	atLeast(r, key+".maxTools", s.MaxTools, 1)
	atLeast(r, key+".maxListBytes", s.MaxListBytes, 1024)
}

func validateServerPath(r *report, key, p string) {
	switch {
	case !strings.HasPrefix(p, "/"):
		r.add(key, "must begin with a slash, got %q", clip(p))
	case strings.ContainsAny(p, "?#%{} "):
		r.add(key, "must be a plain path without a query, escapes, braces or spaces, got %q", clip(p))
	case path.Clean(p) != strings.TrimSuffix(p, "/") && p != "/":
		r.add(key, "must not have empty, \".\" or \"..\" segments, got %q", clip(p))
	case p == "/c" || strings.HasPrefix(p, "/c/"):
		r.add(key, "must not begin with /c/: that names conversations")
	case strings.HasPrefix(p, "/.well-known"):
		r.add(key, "must not begin with /.well-known: that belongs to the backend's OAuth metadata")
	}
}

// validateHealth checks a health address: a path on the backend, or a URL
// where health is answered elsewhere.
func validateHealth(r *report, key, s string) {
	if strings.HasPrefix(s, "/") {
		if _, err := url.Parse(s); err == nil {
			return
		}
	} else if u, err := url.Parse(s); err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" {
		return
	}
	r.add(key, "want a path such as /healthz, or a whole URL, got %q", clip(Redact(s)))
}

func (c *Config) validateConversations(r *report) {
	seen := map[conversation.ID]bool{}
	for i, conv := range c.Conversations {
		key := fmt.Sprintf("conversations[%d]", i)
		id, err := conversation.ParseID(conv.ID)
		switch {
		case conv.ID == "":
			r.missing(key+".id", "needs the conversation's id at its agent server")
		case err != nil:
			r.add(key+".id", "%s", err)
		case seen[id]:
			r.add(key+".id", "%q is there twice", clip(conv.ID))
		}
		seen[id] = true
		c.validateConversationAgent(r, key+".agentServer", conv.AgentServer)
		for j, name := range conv.Servers {
			if c.Server(name) == nil {
				r.add(indexed(r, key+".servers", j), "there is no server %q: known are %s", clip(name), strings.Join(c.ServerNames(), ", "))
			}
		}
	}
}
