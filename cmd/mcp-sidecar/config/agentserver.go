package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
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
	u, err := url.Parse(a.URL)
	if err != nil {
		return nil
	}
	return u
}

// patternRE is what a pattern looks like: a wildcard for the first labels of
// the host, for the port, or both.
var patternRE = regexp.MustCompile(`^https?://(\*\.)?[A-Za-z0-9][A-Za-z0-9.-]*(:(\*|[0-9]{1,5}))?(/[^*?#]*)?$`)

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
		validateAgentURL(r, key+".url", a.URL)
		atLeast(r, key+".concurrency", a.Concurrency, 1)
		notNegative(r, key+".idleAfter", a.IdleAfter)
		if p := a.RefreshPath; p != "" && (!strings.HasPrefix(p, "/") || strings.Count(p, "{id}") != 1) {
			r.add(key+".refreshPath", "want a path that holds {id} once, such as /api/conversations/{id}/refresh_mcp_tools, got %q", clip(p))
		}
	}
}

func validateAgentURL(r *report, key, s string) {
	if s == "" {
		r.missing(key, "needs the URL of the agent server, such as http://127.0.0.1:8000")
		return
	}
	if strings.Contains(s, "*") {
		if !patternRE.MatchString(s) {
			r.add(key, `want a pattern such as "https://*.example.com" or "http://localhost:*": the wildcard is for the beginning of the host or the port`)
		}
		return
	}
	u, err := parseURL(s)
	if err != nil {
		r.add(key, "%s", err)
		return
	}
	httpURL(r, key, u)
	if u.RawQuery != "" {
		r.add(key, "must not have a query: the refresh path is appended to it")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil {
		ip = ip.Unmap()
		if ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified() {
			r.add(key, "%s is not the address of an agent server: link-local, metadata and unspecified addresses are refused", ip)
		}
	}
}
