package discovery

import (
	"cmp"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// conversationPrefix stands before a conversation's id in a URL, which stands before the server's path.
const conversationPrefix = "/c/"

// Matcher tells which servers a URL names. It is immutable.
type Matcher struct {
	public []origin
	paths  map[string]string // trimmed path to the server's name
}

// origin is a public URL of the sidecar.
type origin struct {
	scheme, host string
	prefix       string // "" or a path without a slash at its end
}

// NewMatcher returns a matcher for a sidecar that agents reach at the public URLs, with the path of each server by its name. A public URL may
// have a prefix before the servers' paths, as an ingress adds it; where it ends with the path of a server, that is not a part of the prefix.
func NewMatcher(public []*url.URL, paths map[string]string) *Matcher {
	m := &Matcher{paths: make(map[string]string, len(paths))}
	for name, path := range paths {
		m.paths[trim(path)] = name
	}
	for _, u := range public {
		full := trim(u.Path)
		o := origin{strings.ToLower(u.Scheme), hostPort(u), full}
		m.public = append(m.public, o)
		for path := range m.paths {
			if prefix, ok := strings.CutSuffix(full, path); ok && path != "" {
				m.public = append(m.public, origin{o.scheme, o.host, prefix})
			}
		}
	}
	// Of several ways to read a URL, the one with the longest path of a server counts.
	slices.SortFunc(m.public, func(a, b origin) int { return cmp.Compare(len(a.prefix), len(b.prefix)) })
	return m
}

// Servers returns the names of the servers that the URLs name, sorted.
func (m *Matcher) Servers(urls []string) []string {
	var names []string
	for _, u := range urls {
		if name, ok := m.server(u); ok {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// server returns the server that a URL names. Query and fragment don't matter.
func (m *Matcher) server(s string) (name string, ok bool) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return "", false
	}
	scheme, host, path := strings.ToLower(u.Scheme), hostPort(u), trim(u.Path)
	for _, o := range m.public {
		if o.scheme != scheme || o.host != host {
			continue
		}
		rest, under := strings.CutPrefix(path, o.prefix)
		if !under || rest != "" && rest[0] != '/' {
			continue
		}
		if name, ok := m.paths[rest]; ok {
			return name, true
		}
		after, ok := strings.CutPrefix(rest, conversationPrefix)
		if !ok {
			continue
		}
		id, rest, _ := strings.Cut(after, "/")
		if _, err := conversation.ParseID(id); err != nil {
			continue
		}
		if rest != "" {
			rest = "/" + rest
		}
		if name, ok := m.paths[rest]; ok {
			return name, true
		}
	}
	return "", false
}

// trim takes the slashes off the end of a path; the root is "".
func trim(path string) string { return strings.TrimRight(path, "/") }

// hostPort returns the host in lower case, with the port also where it is the default one.
func hostPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		switch strings.ToLower(u.Scheme) {
		case "http":
			port = "80"
		case "https":
			port = "443"
		}
	}
	return strings.ToLower(u.Hostname()) + " " + port
}

// Shown returns a URL as it may be shown: without user, query and fragment. "" is no URL that can be shown.
func Shown(s string) string {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
