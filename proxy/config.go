package proxy

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"strings"
	"time"
)

// Transports that a backend may speak.
const (
	TransportStreamableHTTP = "streamable-http"
	TransportSSE            = "sse" // HTTP+SSE of 2024-11-05
	TransportStdio          = "stdio"
)

// Replay policies of a server.
const (
	// ReplayHints sends a tool call again after an interruption when the tool's
	// annotations say that it only reads or is idempotent.
	ReplayHints = "hints"
	// ReplayNever never sends a tool call again once it may have begun.
	ReplayNever = "never"
)

// Server is one backend behind one path of the sidecar.
type Server struct {
	// Name is the server's name in metrics, logs and the store.
	Name string
	// Path is where clients find the server, such as "/mcp".
	Path string
	// Upstream is the backend's endpoint.
	Upstream *url.URL
	// Transport is one of the Transport constants, for the backend and for the
	// clients; empty means streamable HTTP. Clients of a stdio backend speak that
	// too.
	Transport string
	// Hold is how long quick requests may wait for the backend, HoldCall how
	// long tool calls may.
	Hold, HoldCall time.Duration
	// Replay is one of the Replay constants; empty means ReplayHints.
	Replay string
	// Via carries the server's requests instead of HTTP. A stdio backend needs
	// it, and then no Upstream.
	Via Upstream
}

// Config is the proxy's configuration: plain data, all of it replaceable at run
// time through [Proxy.Update].
type Config struct {
	// Servers are the backends, each behind a path of its own.
	Servers []Server
	// PublicURLs are the addresses that clients use for the sidecar. When there
	// are any, requests for other hosts are refused.
	PublicURLs []*url.URL
	// AllowedOrigins are the browser origins that may talk to the sidecar.
	AllowedOrigins []string
	// LoopbackListener says that the sidecar listens on loopback addresses only,
	// so that requests must name a loopback host.
	LoopbackListener bool
	// StandardTransport has net/http carry the requests to the backends, instead
	// of the proxy's own connections.
	StandardTransport bool
	// MaxBody is the largest request body in bytes; larger ones get 413.
	MaxBody int64
	// BodyTimeout is how long a client may take to send a request body; slower
	// ones get 408.
	BodyTimeout time.Duration
	// MaxHeld and MaxHeldBytes bound the requests that wait for a server at one
	// time, by number and by the bytes of their bodies.
	MaxHeld      int
	MaxHeldBytes int64
	// HeldComment is how long a request is held before a client that accepts
	// event streams gets its response header and comment lines.
	HeldComment time.Duration
	// KeepAlive is the longest silence on an event stream before a comment line
	// is written.
	KeepAlive time.Duration
	// SessionIdle is how long a session without requests and streams is kept in
	// memory and on the backend. The client may return later all the same.
	SessionIdle time.Duration
	// SessionTTL is how long the store keeps what changed about a session.
	SessionTTL time.Duration
	// NoticeQuiet is how long the backend's own list_changed notices are
	// gathered before one is passed on.
	NoticeQuiet time.Duration
	// ConversationHeaders name the request headers that may carry the id of the
	// conversation a request belongs to.
	ConversationHeaders []string
}

// DefaultConfig returns a configuration with every default and no server.
func DefaultConfig() Config {
	return Config{
		LoopbackListener:    true,
		MaxBody:             16 << 20,
		BodyTimeout:         time.Minute,
		MaxHeld:             1024,
		MaxHeldBytes:        64 << 20,
		HeldComment:         10 * time.Second,
		KeepAlive:           15 * time.Second,
		SessionIdle:         30 * time.Minute,
		SessionTTL:          7 * 24 * time.Hour,
		NoticeQuiet:         500 * time.Millisecond,
		ConversationHeaders: []string{"X-OpenHands-ServerConversation-ID"},
	}
}

// DefaultServer returns a server with every default for a backend's endpoint: it
// is named "default" and served on the endpoint's own path.
func DefaultServer(upstream *url.URL) Server {
	p := upstream.Path
	if p == "" {
		p = "/"
	}

	return Server{
		Name:      "default",
		Path:      p,
		Upstream:  upstream,
		Transport: TransportStreamableHTTP,
		Hold:      25 * time.Second,
		HoldCall:  50 * time.Second,
		Replay:    ReplayHints,
	}
}

func (c *Config) validate() error {
	var errs []error

	bad := func(format string, a ...any) { errs = append(errs, fmt.Errorf(format, a...)) }

	if len(c.Servers) == 0 {
		bad("no server is configured: name at least one upstream")
	}

	if c.MaxBody <= 0 {
		bad("the largest request body must be positive, got %d bytes", c.MaxBody)
	}

	if c.MaxHeld < 0 || c.MaxHeldBytes < 0 {
		bad("the bounds of held requests must not be negative, got %d requests and %d bytes", c.MaxHeld, c.MaxHeldBytes)
	}

	for name, d := range map[string]time.Duration{
		"held comment": c.HeldComment, "keep-alive": c.KeepAlive, "session idle": c.SessionIdle,
		"session TTL": c.SessionTTL, "notice quiet": c.NoticeQuiet, "body": c.BodyTimeout,
	} {
		if d <= 0 {
			bad("the %s time must be positive, got %v", name, d)
		}
	}

	names, paths := map[string]bool{}, map[string]bool{}

	for _, s := range c.Servers {
		if err := s.validate(); err != nil {
			errs = append(errs, err)
		}

		if names[s.Name] {
			bad("two servers are named %q: give each its own name", s.Name)
		}

		if paths[s.Path] {
			bad("two servers are served on %q: give each its own path", s.Path)
		}

		names[s.Name], paths[s.Path] = true, true
	}

	return errors.Join(errs...)
}

func (s *Server) validate() error {
	var errs []error

	bad := func(format string, a ...any) {
		errs = append(errs, fmt.Errorf("server %q: "+format, append([]any{s.Name}, a...)...))
	}

	if s.Name == "" {
		bad("a server needs a name")
	}

	if !strings.HasPrefix(s.Path, "/") || path.Clean(s.Path) != strings.TrimSuffix(s.Path, "/") && s.Path != "/" {
		bad("path %q must begin with a slash and be clean", s.Path)
	}

	if s.Path == conversationPrefix || strings.HasPrefix(s.Path, conversationPrefix+"/") || strings.HasPrefix(s.Path, wellKnown) {
		bad("path %q is taken: %s/ and %s are the sidecar's own", s.Path, conversationPrefix, wellKnown)
	}

	switch s.Transport {
	case "", TransportStreamableHTTP, TransportSSE:
		if s.Upstream == nil || s.Upstream.Host == "" || s.Upstream.Scheme != "http" && s.Upstream.Scheme != "https" {
			bad("the upstream must be an absolute http or https URL")
		}
	case TransportStdio:
		if s.Via == nil {
			bad("a stdio backend needs something that carries its requests")
		}
	default:
		bad("transport %q is unknown: use %s, %s or %s", s.Transport, TransportStreamableHTTP, TransportSSE, TransportStdio)
	}

	switch s.Replay {
	case "", ReplayHints, ReplayNever:
	default:
		bad("replay %q is unknown: use %s or %s", s.Replay, ReplayHints, ReplayNever)
	}

	if s.Hold < 0 || s.HoldCall < 0 {
		bad("hold times must not be negative, got %v and %v", s.Hold, s.HoldCall)
	}

	return errors.Join(errs...)
}
