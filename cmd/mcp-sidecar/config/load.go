package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFile bounds the configuration file, in bytes.
const maxFile = 1 << 20

// Override sets one value from outside the file.
type Override struct {
	Key    string // of the setting, as in the file
	Origin string // what people know it by: a flag or a variable
	Apply  func(*Config) error
}

// Load reads the file, if one is named, applies the overrides and validates
// the result. The error is an [*Error] with every problem, or says why the
// file can't be read.
func Load(file string, overrides ...Override) (*Config, error) {
	var data []byte
	if file != "" {
		var err error
		if data, err = read(file); err != nil {
			return nil, err
		}
	}
	c, r := parse(file, data, overrides)
	c.checkFiles(r)
	if err := r.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// parse is [Load] without any reading of files.
func parse(file string, data []byte, overrides []Override) (*Config, *report) {
	c := Default()
	r := newReport(file)
	if file != "" {
		decode(data, filepath.Dir(file), &c, r)
	}
	for _, o := range overrides {
		delete(r.bad, o.Key)
		r.origins[o.Key] = o.Origin
		if err := o.Apply(&c); err != nil {
			r.add(o.Key, "%s", err)
		}
	}
	c.expand(r)
	c.validate(r)
	return &c, r
}

func read(file string) ([]byte, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s: there is no such configuration file: check --config", file)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("reading the configuration: %w", err)
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%s: the configuration file is larger than 1 MiB", file)
	}
	return data, nil
}

// SetUpstream parses s for the Upstream setting.
func (c *Config) SetUpstream(s string) error {
	u, err := parseURL(s)
	if err == nil {
		c.Upstream = u
	}
	return err
}

// expand turns the shorthands into entries and gives every entry the settings
// that it inherits. A shorthand names an entry: it sets that entry's address
// if the file has the entry, and adds it if not.
func (c *Config) expand(r *report) {
	c.expandServers(r)
	c.expandAgentServers(r)
	for i := range c.Servers {
		c.inherit(&c.Servers[i], fmt.Sprintf("servers[%d]", i), r)
	}
	for i := range c.Conversations {
		conv := &c.Conversations[i]
		if conv.AgentServer == "" {
			conv.AgentServer = c.soleAgentServer()
		}
		if len(conv.Servers) == 0 {
			conv.Servers = c.ServerNames()
		}
	}
}

func (c *Config) expandServers(r *report) {
	if len(c.Servers) == 1 && c.Servers[0].Name == "" {
		c.Servers[0].Name = DefaultName
	}
	if c.Upstream == nil && len(c.Stdio) == 0 {
		return
	}
	if c.Upstream != nil && len(c.Stdio) > 0 {
		r.add("stdio", "both an upstream URL and a stdio command are given: a server has one of them")
	}
	i := slices.IndexFunc(c.Servers, func(s Server) bool { return s.Name == DefaultName })
	if i < 0 {
		i = len(c.Servers)
		c.Servers = append(c.Servers, defaultServer())
		c.Servers[i].Name = DefaultName
		// What is wrong with this entry is wrong with the shorthand.
		from := "upstream"
		if c.Upstream == nil {
			from = "stdio"
		}
		r.alias(fmt.Sprintf("servers[%d]", i), from)
	}
	s := &c.Servers[i]
	r.alias(fmt.Sprintf("servers[%d].upstream", i), "upstream")
	r.alias(fmt.Sprintf("servers[%d].command", i), "stdio")
	if c.Upstream != nil {
		s.Upstream, s.Command = c.Upstream, nil
		if s.Transport == TransportStdio {
			s.Transport = TransportStreamable
		}
		return
	}
	s.Upstream, s.Command = nil, c.Stdio
}

func (c *Config) expandAgentServers(r *report) {
	if len(c.AgentServers) == 1 && c.AgentServers[0].Name == "" {
		c.AgentServers[0].Name = DefaultName
	}
	for i, entry := range c.AgentServer {
		name, addr, named := strings.Cut(entry, "=")
		if !named || strings.ContainsAny(name, ":/") { // an = inside of a URL
			name, addr = "", entry
		}
		if name == "" {
			name = DefaultName
			if i > 0 {
				r.add("agentServer", "only the first agent server may go without a name: write NAME=%s", Redact(entry))
				continue
			}
		}
		at := slices.IndexFunc(c.AgentServers, func(a AgentServer) bool { return a.Name == name })
		if at < 0 {
			at = len(c.AgentServers)
			c.AgentServers = append(c.AgentServers, defaultAgentServer())
			c.AgentServers[at].Name = name
			r.alias(fmt.Sprintf("agentServers[%d]", at), "agentServer")
		}
		a := &c.AgentServers[at]
		r.alias(fmt.Sprintf("agentServers[%d].url", at), "agentServer")
		a.URL = addr
		if c.AgentAPIKeyFile != "" {
			a.APIKeyFile = c.AgentAPIKeyFile
		}
	}
	if c.AgentAPIKeyFile != "" && len(c.AgentServer) == 0 {
		r.add("agentApiKeyFile", "a key without an agent server: add --agent-server, or write apiKeyFile at an entry of agentServers")
	}
}

// inherit fills what an entry of servers leaves to the global settings.
func (c *Config) inherit(s *Server, key string, r *report) {
	inherit(r, key+".health", &s.Health, c.HealthPath)
	inherit(r, key+".hold", &s.Hold, c.Hold)
	inherit(r, key+".holdCall", &s.HoldCall, c.HoldCall)
	inherit(r, key+".settle", &s.Settle, c.Settle)
	inherit(r, key+".probe.interval", &s.Probe.Interval, c.ProbeInterval)
	inherit(r, key+".probe.timeout", &s.Probe.Timeout, c.ProbeTimeout)
	inherit(r, key+".probe.listInterval", &s.Probe.ListInterval, c.ListInterval)
	inherit(r, key+".probe.headersFile", &s.Probe.HeadersFile, c.ProbeHeadersFile)
	if len(s.Command) > 0 && !r.isSet(key+".transport") {
		s.Transport = TransportStdio
	}
	if s.Path != "" {
		return
	}
	switch {
	case s.Upstream == nil:
		s.Path = "/mcp"
	case s.Upstream.Path == "":
		s.Path = "/"
	default:
		s.Path = s.Upstream.Path
	}
}

func inherit[T any](r *report, key string, dst *T, global T) {
	if !r.isSet(key) {
		*dst = global
	}
}

// Server returns the server of that name, or nil.
func (c *Config) Server(name string) *Server {
	for i := range c.Servers {
		if c.Servers[i].Name == name {
			return &c.Servers[i]
		}
	}
	return nil
}

// ServerNames returns the names of all servers.
func (c *Config) ServerNames() []string {
	names := make([]string, len(c.Servers))
	for i, s := range c.Servers {
		names[i] = s.Name
	}
	return names
}

// AgentServerNamed returns the agent server of that name, or nil.
func (c *Config) AgentServerNamed(name string) *AgentServer {
	for i := range c.AgentServers {
		if c.AgentServers[i].Name == name {
			return &c.AgentServers[i]
		}
	}
	return nil
}

// soleAgentServer is the one that a registration means which names none.
func (c *Config) soleAgentServer() string {
	if len(c.AgentServers) == 1 {
		return c.AgentServers[0].Name
	}
	return DefaultName
}

// Redact returns a URL without what may be a credential: user, query and
// fragment. What isn't a URL comes back as "(not a URL)".
func Redact(s string) string {
	u, err := url.Parse(s)
	if err != nil {
		return "(not a URL)"
	}
	return RedactURL(u)
}

// RedactURL is [Redact] for a URL that was parsed already; nil gives "".
func RedactURL(u *url.URL) string {
	if u == nil {
		return ""
	}
	r := *u
	r.User, r.RawQuery, r.ForceQuery, r.Fragment, r.RawFragment = nil, "", false, "", ""
	return r.String()
}
