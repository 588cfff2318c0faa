package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
)

// maxAgentURL bounds the URL of an agent server, in bytes.
const maxAgentURL = 1024

// patternRE is what a pattern looks like: a wildcard for the first labels of
// the host, for the port, or both.
var patternRE = regexp.MustCompile(`^(https?)://(\*\.)?([A-Za-z0-9][A-Za-z0-9.-]*)(?::(\*|[0-9]{1,5}))?(/[^*?#]*)?$`)

// pattern is a URL that stands for several.
type pattern struct {
	base    *url.URL // without the wildcards
	anyHost bool     // any name below the base's
	anyPort bool
}

func parsePattern(s string) (pattern, error) {
	m := patternRE.FindStringSubmatch(s)
	if m == nil {
		return pattern{}, errors.New(`want a pattern such as "https://*.example.com" or "http://localhost:*": the wildcard is for the beginning of the host or the port`)
	}
	p := pattern{anyHost: m[2] != "", anyPort: m[4] == "*"}
	host := m[3]
	if m[4] != "" && !p.anyPort {
		host += ":" + m[4]
	}
	u, err := ParseAgentURL(m[1] + "://" + host + m[5])
	if err != nil {
		return pattern{}, err
	}
	if p.anyHost && numericHost(u.Hostname()) {
		return pattern{}, errors.New("a wildcard can't stand for a part of an IP address")
	}
	p.base = u
	return p, nil
}

// matches tells whether the pattern allows a URL of [ParseAgentURL].
func (p pattern) matches(u *url.URL) bool {
	hostOK := u.Hostname() == p.base.Hostname()
	if p.anyHost {
		labels, below := strings.CutSuffix(u.Hostname(), "."+p.base.Hostname())
		hostOK = below && labels != ""
	}
	return hostOK && u.Scheme == p.base.Scheme && u.Path == p.base.Path && (p.anyPort || u.Port() == p.base.Port())
}

// ParseAgentURL returns the one spelling of the URL of an agent server: scheme
// and host in lower case, no default port, no slash at the end. It refuses what
// can't be one, or what could be read in two ways: other schemes, users and
// passwords, queries, escapes, IP addresses in other forms than the usual one,
// and those of [notify.CheckAddress]. Errors don't repeat the URL.
func ParseAgentURL(s string) (*url.URL, error) {
	if len(s) > maxAgentURL {
		return nil, fmt.Errorf("the URL has more than %d bytes", maxAgentURL)
	}
	u, err := parseURL(s)
	if err != nil {
		return nil, err
	}
	u.Scheme = strings.ToLower(u.Scheme)
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, errors.New("must begin with http:// or https://")
	case u.Hostname() == "":
		return nil, errors.New("names no host: write it like http://127.0.0.1:8000")
	case u.User != nil:
		return nil, errors.New("must not hold a user or a password: give credentials in a file")
	case u.RawQuery != "" || u.ForceQuery:
		return nil, errors.New("must not have a query: the refresh path is appended to it")
	case u.Fragment != "" || strings.Contains(s, "#"):
		return nil, errors.New("must not have a fragment")
	case !pathRE.MatchString(u.EscapedPath()):
		return nil, errors.New("its path may have letters, digits and -._~ only")
	}
	prefix := strings.TrimRight(u.Path, "/")
	if prefix != "" && path.Clean(prefix) != prefix {
		return nil, errors.New(`must not have empty, "." or ".." segments in its path`)
	}
	host, err := agentHost(u.Hostname())
	if err != nil {
		return nil, err
	}
	port, err := agentPort(u)
	if err != nil {
		return nil, err
	}
	switch {
	case port != "":
		host = net.JoinHostPort(host, port)
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	return &url.URL{Scheme: u.Scheme, Host: host, Path: prefix}, nil
}

var pathRE = regexp.MustCompile(`^[A-Za-z0-9._~/-]*$`)

// hostRE is a DNS name, or what looks like one.
var hostRE = regexp.MustCompile(`^[a-z0-9_]([a-z0-9_.-]*[a-z0-9_])?$`)

// agentHost returns the one spelling of a host.
func agentHost(s string) (string, error) {
	host := strings.TrimSuffix(strings.ToLower(s), ".")
	ip, err := netip.ParseAddr(host)
	switch {
	case err == nil && ip.Zone() != "":
		return "", errors.New("must not have a zone in its address")
	case err == nil:
		ip = ip.Unmap()
		if notify.CheckAddress(ip) != nil {
			return "", fmt.Errorf("%s is not the address of an agent server: link-local, metadata and unspecified addresses are refused", ip)
		}
		return ip.String(), nil
	case numericHost(host):
		return "", errors.New("write the IP address as four decimal numbers without leading zeros")
	case !hostRE.MatchString(host) || strings.Contains(host, ".."):
		return "", errors.New("its host is not a name or an IP address")
	}
	return host, nil
}

// numericHost tells whether some resolver takes a host for an IPv4 address:
// its last label is a decimal, octal or hexadecimal number.
func numericHost(host string) bool {
	last := host[strings.LastIndexByte(host, '.')+1:]
	digits, isHex := strings.CutPrefix(last, "0x")
	return digits == "" && isHex || digits != "" && strings.Trim(digits, "0123456789") == "" ||
		isHex && strings.Trim(digits, "0123456789abcdef") == ""
}

// agentPort returns the port, "" for the default one.
func agentPort(u *url.URL) (string, error) {
	port := u.Port()
	if port == "" {
		return "", nil
	}
	n, err := parsePort(port)
	switch {
	case err != nil || n == 0:
		return "", errors.New("its port is not a number from 1 to 65535")
	case u.Scheme == "http" && n == 80, u.Scheme == "https" && n == 443:
		return "", nil
	}
	return strconv.FormatUint(uint64(n), 10), nil
}

// ErrNotAllowed says that no configured agent server has that address.
var ErrNotAllowed = errors.New("no agent server of the configuration has this address, and none of its patterns allows it")

// ResolveAgent finds the agent server that s means: the name of an entry, or a
// URL that is an entry's or that an entry's pattern allows. The first entry
// counts. Errors don't repeat s.
func (c *Config) ResolveAgent(s string) (conversation.Instance, error) {
	if !strings.Contains(s, "://") {
		a := c.AgentServerNamed(s)
		switch {
		case a == nil:
			return conversation.Instance{}, errors.New("there is no agent server of that name: add it to agentServers")
		case a.IsPattern():
			return conversation.Instance{}, &conversation.UnlocatedError{AgentServer: a.Name}
		}
		return conversation.Instance{AgentServer: a.Name}, nil
	}
	u, err := ParseAgentURL(s)
	if err != nil {
		return conversation.Instance{}, err
	}
	for i := range c.AgentServers {
		if at, ok := c.AgentServers[i].at(u); ok {
			return at, nil
		}
	}
	return conversation.Instance{}, ErrNotAllowed
}

// at returns what a URL of [ParseAgentURL] is at the entry, if it belongs there.
func (a AgentServer) at(u *url.URL) (conversation.Instance, bool) {
	if !a.IsPattern() {
		own, err := ParseAgentURL(a.URL)
		return conversation.Instance{AgentServer: a.Name}, err == nil && *own == *u
	}
	p, err := parsePattern(a.URL)
	return conversation.Instance{AgentServer: a.Name, URL: u.String()}, err == nil && p.matches(u)
}
