package config

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// checkFiles reports files that can't be read. Their content is read when it is
// used, so that a rotated secret needs no reload.
func (c *Config) checkFiles(r *report) {
	files := [][2]string{
		{"tlsCertFile", c.TLSCertFile},
		{"tlsKeyFile", c.TLSKeyFile},
		{"listenTokenFile", c.ListenTokenFile},
		{"adminTokenFile", c.AdminTokenFile},
		{"sessionKeyFile", c.SessionKeyFile},
		{"probeHeadersFile", c.ProbeHeadersFile},
		{"agentApiKeyFile", c.AgentAPIKeyFile},
		{"redisPasswordFile", c.RedisPasswordFile},
		{"redisCaFile", c.RedisCAFile},
	}
	for i, s := range c.Servers {
		if key := fmt.Sprintf("servers[%d].probe.headersFile", i); r.isSet(key) {
			files = append(files, [2]string{key, s.Probe.HeadersFile})
		}
	}
	for i, s := range c.Servers {
		if s.Directory == "" {
			continue
		}
		if info, err := os.Stat(s.Directory); err != nil || !info.IsDir() {
			r.add(fmt.Sprintf("servers[%d].directory", i), "%s is no directory", s.Directory)
		}
	}
	for i, a := range c.AgentServers {
		key := fmt.Sprintf("agentServers[%d].", i)
		if a.APIKeyFile != c.AgentAPIKeyFile {
			files = append(files, [2]string{key + "apiKeyFile", a.APIKeyFile})
		}
		files = append(files, [2]string{key + "registerTokenFile", a.RegisterTokenFile}, [2]string{key + "caFile", a.CAFile},
			[2]string{key + "certFile", a.CertFile}, [2]string{key + "keyFile", a.KeyFile})
	}
	for _, f := range files {
		if f[1] == "" {
			continue
		}
		info, err := os.Stat(f[1])
		switch {
		case err != nil:
			r.add(f[0], "can't read the file: %s", err)
		case info.IsDir():
			r.add(f[0], "%s is a directory, not a file", f[1])
		}
	}
}

func splitListen(addr string) (host, port string, err error) {
	host, port, err = net.SplitHostPort(addr)
	if err != nil {
		return "", "", fmt.Errorf("want HOST:PORT or :PORT, got %q", clip(addr))
	}
	if _, err := parsePort(port); err != nil {
		return "", "", fmt.Errorf("%q is not a port: want a number up to 65535", clip(port))
	}
	return host, port, nil
}

func parsePort(s string) (uint16, error) {
	n, err := strconv.ParseUint(s, 10, 16)
	return uint16(n), err
}

// IsLoopback tells whether a listen address can be reached from this machine
// only.
func IsLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

func httpURL(r *report, key string, u *url.URL) {
	switch {
	case u.Scheme != "http" && u.Scheme != "https":
		r.add(key, "must begin with http:// or https://")
	case u.Host == "" || u.Hostname() == "":
		r.add(key, "names no host: write it like http://127.0.0.1:9000/mcp")
	case u.User != nil:
		r.add(key, "must not hold a user or a password: give credentials in a file")
	case u.Fragment != "":
		r.add(key, "must not have a fragment")
	}
}

func oneOf(r *report, key, got string, want ...string) {
	if !slices.Contains(want, got) {
		r.add(key, "want %s, got %q", strings.Join(want, ", "), clip(got))
	}
}

func positive(r *report, key string, d time.Duration) {
	if d <= 0 {
		r.add(key, "must be longer than 0, got %s", d)
	}
}

func notNegative(r *report, key string, d time.Duration) {
	if d < 0 {
		r.add(key, "must not be negative, got %s", d)
	}
}

func atLeast[T int | int64](r *report, key string, got, least T) {
	if got < least {
		r.add(key, "must be at least %d, got %d", least, got)
	}
}

// indexed is the key of an entry, or of the list where the entries have no
// place of their own.
func indexed(r *report, key string, i int) string {
	if k := fmt.Sprintf("%s[%d]", key, i); r.isSet(k) {
		return k
	}
	return key
}
