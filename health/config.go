package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"time"
)

// The transports of [Config].
const (
	TransportHTTP  = "streamable-http" // every revision since 2025-03-26
	TransportSSE   = "sse"             // HTTP+SSE of 2024-11-05
	TransportStdio = "stdio"           // like streamable-http, through [Deps.Transport]
)

// Config says whom to watch, and how patiently. Start from [DefaultConfig].
type Config struct {
	Server    string // name for logs, metrics and events
	URL       *url.URL
	HealthURL *url.URL // optional: must answer 2xx for the backend to be ready
	Transport string   // [TransportHTTP], [TransportSSE] or [TransportStdio]

	// Headers returns what the sidecar's own requests carry, such as Authorization. It is asked before each request; after an
	// error the last good answer is used on. Optional.
	Headers func() (http.Header, error)

	ProbeInterval  time.Duration // between two signs of life
	ProbeTimeout   time.Duration // for one question
	ConnectTimeout time.Duration // for a handshake
	ListInterval   time.Duration // between two full listings without any reason
	ListTimeout    time.Duration // for one listing, all pages
	Settle         time.Duration // two listings this far apart must agree
	ShrinkGrace    time.Duration // how long a new process may lack tools of the old one before that counts
	EmptyGrace     time.Duration // how long a new process may have no tools before that counts

	Fails  int // failures in a row before the backend is down
	Passes int // answers in a row before it is up again

	MaxTools     int
	MaxListBytes int64
	IncludeMeta  bool // hash `_meta` and `icons` too

	// IdentityHeader names a header in the backend's answers that changes exactly when the process does. It is meant for one
	// process per address: with several workers leave it empty.
	IdentityHeader string
	PIDFile        string   // file with the id of the backend's process
	Watch          []string // files, sockets and markers whose change is a reason to look

	// LastHash is the hash that settled last, as the store has it, and LastTools the names of its tools. If the first listing
	// has that hash it counts at once.
	LastHash  string
	LastTools []string

	ClientVersion string // what the probe calls itself, besides mcp-sidecar
}

// DefaultConfig returns the defaults; Server and URL are still to be set.
func DefaultConfig() Config {
	return Config{
		Transport:      TransportHTTP,
		ProbeInterval:  2 * time.Second,
		ProbeTimeout:   time.Second,
		ConnectTimeout: 5 * time.Second,
		ListInterval:   30 * time.Second,
		ListTimeout:    10 * time.Second,
		Settle:         300 * time.Millisecond,
		ShrinkGrace:    2 * time.Second,
		EmptyGrace:     30 * time.Second,
		Fails:          3,
		Passes:         1,
		MaxTools:       10_000,
		MaxListBytes:   16 << 20,
		ClientVersion:  "dev",
	}
}

// validate returns every problem of the configuration.
func (c *Config) validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Server == "" {
		bad("server: must have a name")
	}
	switch c.Transport {
	case TransportHTTP, TransportSSE, TransportStdio:
	default:
		bad("transport: must be %s, %s or %s, not %q", TransportHTTP, TransportSSE, TransportStdio, c.Transport)
	}
	for _, u := range []struct {
		name string
		url  *url.URL
	}{{"url", c.URL}, {"health url", c.HealthURL}} {
		switch {
		case u.url == nil && u.name == "url":
			bad("url: must be set")
		case u.url != nil && (u.url.Scheme != "http" && u.url.Scheme != "https" || u.url.Host == ""):
			bad("%s: must be an http or https URL with a host", u.name)
		}
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"probe interval", c.ProbeInterval},
		{"probe timeout", c.ProbeTimeout},
		{"connect timeout", c.ConnectTimeout},
		{"list interval", c.ListInterval},
		{"list timeout", c.ListTimeout},
		{"settle", c.Settle},
		{"shrink grace", c.ShrinkGrace},
		{"empty grace", c.EmptyGrace},
	} {
		if d.value <= 0 {
			bad("%s: must be more than 0, not %s", d.name, d.value)
		}
	}
	if c.Fails < 1 || c.Passes < 1 {
		bad("fails and passes: must be at least 1, not %d and %d", c.Fails, c.Passes)
	}
	if c.MaxTools < 1 || c.MaxListBytes < 1 {
		bad("max tools and max list bytes: must be at least 1, not %d and %d", c.MaxTools, c.MaxListBytes)
	}
	return errors.Join(errs...)
}

// Deps are what a [Checker] is given. Everything is optional.
type Deps struct {
	Logger  *slog.Logger
	Metrics *Metrics

	// Notify is told everything that happens, in order and never concurrently. It must return quickly; it may call the
	// checker's methods except Check.
	Notify func(Event)

	// Dial opens connections to the backend.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)

	// Transport carries the requests instead of connections that the checker opens, for a backend that isn't reached through
	// the network. An error that wraps [syscall.ECONNREFUSED] says that no process is there.
	Transport http.RoundTripper
}
