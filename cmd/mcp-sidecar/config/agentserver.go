package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"strings"
)

// IsPattern tells whether the URL stands for several addresses: its host
// begins with "*." or its port is "*". Nothing is called at a pattern itself;
// it allows registrations to name an address that matches.
func (a AgentServer) IsPattern() bool {
	return strings.Contains(a.URL, "*")
}

// Base returns the parsed URL, and nil for a pattern.
func (a AgentServer) Base() *url.URL {
	if a.IsPattern() {
		return nil
	}
	u, err := ParseAgentURL(a.URL)
	if err != nil {
		return nil
	}
	return u
}

func (c *Config) validateAgentServers(r *report) {
	names := map[string]bool{}
	for i, a := range c.AgentServers {
		key := fmt.Sprintf("agentServers[%d]", i)
		switch {
		case a.Name == "":
			r.missing(key+".name", "each of several agent servers needs a name")
		case !nameRE.MatchString(a.Name):
			r.add(key+".name", nameRule, clip(a.Name))
		case names[a.Name]:
			r.add(key+".name", "%q is the name of another agent server too", a.Name)
		}
		names[a.Name] = true
		c.validateAgentURL(r, key+".url", a.URL)
		if (a.CertFile == "") != (a.KeyFile == "") {
			r.add(key+".certFile", "a client certificate needs both certFile and keyFile")
		} else if a.CertFile != "" && !strings.HasPrefix(a.URL, "https://") {
			r.add(key+".certFile", "a client certificate is for a url with https://")
		}
		atLeast(r, key+".concurrency", a.Concurrency, 1)
		notNegative(r, key+".idleAfter", a.IdleAfter)
		if p := a.RefreshPath; p != "" && (!strings.HasPrefix(p, "/") || strings.Count(p, "{id}") != 1) {
			r.add(key+".refreshPath", "want a path that holds {id} once, such as /api/conversations/{id}/refresh_mcp_tools, got %q", clip(p))
		}
	}
}

func (c *Config) validateAgentURL(r *report, key, s string) {
	if s == "" {
		r.missing(key, "needs the URL of the agent server, such as http://127.0.0.1:8000")
		return
	}
	if strings.Contains(s, "*") {
		if _, err := parsePattern(s); err != nil {
			r.add(key, "%s", err)
		}
		return
	}
	u, err := ParseAgentURL(s)
	switch {
	case err != nil:
		r.add(key, "%s", err)
	case c.isOwn(u):
		r.add(key, "this is the sidecar's own address")
	}
}

// isOwn tells whether a URL is that of a listener, as far as that can be told
// without resolving names.
func (c *Config) isOwn(u *url.URL) bool {
	for _, l := range []string{c.Listen, c.OpsListen, c.AdminListen, c.RegisterListen} {
		host, port, err := splitListen(l)
		if err != nil || port == "0" || port != u.Port() {
			continue
		}
		if host == u.Hostname() || IsLoopback(u.Host) && (host == "" || IsLoopback(l) || isUnspecified(host)) {
			return true
		}
	}
	return false
}

func isUnspecified(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.IsUnspecified()
}

func (c *Config) validateConversationAgent(r *report, key, s string) {
	if !strings.Contains(s, "://") && c.AgentServerNamed(s) == nil {
		r.add(key, "there is no agent server %q: add it to agentServers", clip(s))
		return
	}
	if _, err := c.ResolveAgent(s); err != nil {
		r.add(key, "%s", err)
	}
}
