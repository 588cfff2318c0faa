package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/proxy/http1"
)

// GuardConfig says who may talk to a listener.
type GuardConfig struct {
	// Loopback says that it listens on loopback addresses only.
	Loopback bool
	// PublicURLs are the addresses that clients use.
	PublicURLs []*url.URL
	// AllowedOrigins are the browser origins that may talk to it, such as
	// "https://app.example.com".
	AllowedOrigins []string
}

// Guard protects a listener from web pages: from foreign ones, by the Origin
// header, and from ones that made a name of theirs point at the listener (DNS
// rebinding), by the Host header. The specification asks for the former of every
// server (MCP 2025-11-25, "Transports", security warning).
//
// A request without an Origin doesn't come from a page and passes. "null" never
// does. Besides the allowed origins, the listener's own are accepted.
//
// Host is checked where it is known what it must be: on a loopback listener, and
// where there are public URLs. Loopback names and the hosts of the public URLs
// pass, with any port. A Guard is safe for concurrent use.
type Guard struct {
	checkHost bool
	hosts     []string // of the public URLs
	origins   []string // allowed ones and those of the public URLs
}

// The reasons for which a Guard refuses.
var (
	errOrigin = errors.New("this origin may not talk to the server: allow it with --allowed-origin if it should")
	errHost   = errors.New("the server isn't known by this host name: add its URL with --public-url if it should be")
)

// NewGuard returns a guard. An origin that isn't one is an error.
func NewGuard(cfg GuardConfig) (*Guard, error) {
	g := &Guard{checkHost: cfg.Loopback || len(cfg.PublicURLs) > 0}

	var errs []error

	for _, o := range cfg.AllowedOrigins {
		origin, ok := normalOrigin(o)
		if !ok {
			errs = append(errs, fmt.Errorf("allowed origin %q must be a scheme and a host, such as https://app.example.com", o))
			continue
		}

		g.origins = append(g.origins, origin)
	}

	for _, u := range cfg.PublicURLs {
		g.hosts = append(g.hosts, normalHost(u.Hostname()))

		if origin, ok := normalOrigin(u.Scheme + "://" + u.Host); ok {
			g.origins = append(g.origins, origin)
		}
	}

	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	return g, nil
}

// Handler refuses with 403 what check refuses, answers preflight requests of
// allowed origins, and lets allowed origins read the answers of next.
func (g *Guard) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := g.check(r); err != nil {
			http.Error(w, err.Error(), http.StatusForbidden)
			return
		}

		if g.cors(w, r) {
			return
		}

		next.ServeHTTP(w, r)
	})
}

// check returns errHost or errOrigin for a request to refuse with 403.
func (g *Guard) check(r *http.Request) error {
	if g.checkHost && !g.knownHost(r.Host) {
		return errHost
	}

	switch values := r.Header["Origin"]; len(values) {
	case 0:
		return nil
	case 1:
		if g.knownOrigin(values[0], r.Host) {
			return nil
		}
	}

	return errOrigin
}

func (g *Guard) knownHost(hostport string) bool {
	host, _ := splitHost(hostport)

	return isLoopbackHost(host) || slices.Contains(g.hosts, host)
}

// knownOrigin accepts the listed origins and, for pages that the loopback
// listener serves itself, loopback origins with the very port of the request. No
// page from elsewhere can have such an origin, whatever its name points at.
func (g *Guard) knownOrigin(value, hostport string) bool {
	origin, ok := normalOrigin(value)
	if !ok {
		return false
	}

	if slices.Contains(g.origins, origin) {
		return true
	}

	scheme, rest, _ := strings.Cut(origin, "://")
	if scheme != "http" && scheme != "https" {
		return false
	}

	from, fromPort := splitHost(rest)
	to, toPort := splitHost(hostport)

	if toPort == defaultPort(scheme) {
		toPort = ""
	}

	return isLoopbackHost(from) && isLoopbackHost(to) && fromPort == toPort
}

// cors adds what a browser needs to let a page of another origin read the
// answer. It reports whether the request was a preflight, which it answers.
func (g *Guard) cors(w http.ResponseWriter, r *http.Request) (answered bool) {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}

	h := w.Header()
	h.Add("Vary", "Origin")
	h.Set("Access-Control-Allow-Origin", origin)
	h.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, Mcp-Protocol-Version, WWW-Authenticate, Retry-After")

	if r.Method != http.MethodOptions || r.Header.Get("Access-Control-Request-Method") == "" {
		return false
	}

	h.Add("Vary", "Access-Control-Request-Headers")
	h.Set("Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS")
	h.Set("Access-Control-Max-Age", "600")

	// The origin is trusted, and Mcp-Param-* names can't be known in advance.
	if names := r.Header.Get("Access-Control-Request-Headers"); names != "" && http1.IsValue(names) {
		h.Set("Access-Control-Allow-Headers", names)
	}

	w.WriteHeader(http.StatusNoContent)

	return true
}

// normalOrigin lower-cases an origin and takes the scheme's own port off. It
// refuses what isn't an origin: "null", several in one, a URL with a path.
func normalOrigin(s string) (string, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme == "" || u.Host == "" || u.User != nil ||
		u.Path != "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.ContainsAny(s, " ,#*") {
		return "", false
	}

	host := normalHost(u.Hostname())
	if host == "" {
		return "", false
	}

	if p := u.Port(); p != "" && p != defaultPort(u.Scheme) {
		return u.Scheme + "://" + net.JoinHostPort(host, p), true
	}

	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}

	return u.Scheme + "://" + host, true
}

// splitHost takes a Host header apart; the port is "" when there is none.
func splitHost(hostport string) (host, port string) {
	if h, p, err := net.SplitHostPort(hostport); err == nil {
		return normalHost(h), p
	}

	return normalHost(strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")), ""
}

func normalHost(host string) string {
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

func isLoopbackHost(host string) bool {
	if host == "localhost" {
		return true
	}

	ip, err := netip.ParseAddr(host)

	return err == nil && ip.Unmap().IsLoopback()
}
