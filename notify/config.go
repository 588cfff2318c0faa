package notify

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"
	"time"
)

// AgentServer is an agent server whose conversations are refreshed.
type AgentServer struct {
	// Name stands in logs, and in metrics if there is no Label. It is that of the
	// [conversation.Instance] whose conversations are refreshed there.
	Name string
	// Label is the name under which several agent servers count together in metrics:
	// the sandboxes that one allowed pattern stands for.
	Label string
	// URL is where it is reached, with the prefix of an ingress if there is one.
	URL *url.URL
	// APIKey returns the key that goes into X-Session-API-Key. It is called for
	// every request, concurrently, so that the key can be rotated; surrounding
	// white space is trimmed. An error or an empty key fails the request. Nil means that the agent server
	// wants no key.
	APIKey func() (string, error)
	// CAFile has the PEM certificates to trust instead of the system's. It is read
	// for every connection.
	CAFile string
	// CertFile and KeyFile have the PEM certificate, and its key, that the sidecar
	// shows if the agent server asks for one. They are read for every connection.
	CertFile, KeyFile string
	// Concurrency is how many of its conversations are refreshed at once.
	Concurrency int
	// RefreshPath is the path of the refresh action under URL, with {id} in the
	// conversation's place.
	RefreshPath string
	// Forbidden tells whether an address is refused besides those of
	// [CheckAddress], such as the sidecar's own. It is asked before every connection,
	// concurrently. Nil refuses no other.
	Forbidden func(netip.AddrPort) bool
}

// DefaultAgentServer returns an agent server with the defaults of all that can
// have one.
func DefaultAgentServer(name string, u *url.URL) AgentServer {
	return AgentServer{Name: name, URL: u, Concurrency: 4, RefreshPath: DefaultRefreshPath}
}

func (s AgentServer) label() string {
	if s.Label != "" {
		return s.Label
	}

	return s.Name
}

func (s AgentServer) validate() error {
	var problems []error
	problem := func(text string) {
		problems = append(problems, fmt.Errorf("agent server %q: %s", s.Name, text))
	}
	if s.Name == "" {
		problem("it needs a name")
	}
	switch {
	case s.URL == nil:
		problem("it needs a url")
	case s.URL.Scheme != "http" && s.URL.Scheme != "https":
		problem("its url must begin with http:// or https://")
	case s.URL.Hostname() == "":
		problem("its url needs a host")
	case s.URL.User != nil:
		problem("its url must not hold credentials; put the key into apiKeyFile")
	default:
		if a, err := netip.ParseAddr(s.URL.Hostname()); err == nil && CheckAddress(a) != nil {
			problem("its url names an address that is never called (link-local, cloud metadata, unspecified or multicast)")
		}
	}
	if s.Concurrency < 1 {
		problem("concurrency must be at least 1")
	}
	if !strings.HasPrefix(s.RefreshPath, "/") || !strings.Contains(s.RefreshPath, "{id}") {
		problem("refreshPath must begin with / and contain {id}")
	}

	return errors.Join(problems...)
}

// Config are the limits of a [Reconciler].
type Config struct {
	// Concurrency is how many refreshes run at once in all.
	Concurrency int
	// CallTimeout bounds one refresh with its short retries.
	CallTimeout time.Duration
	// BackoffMin and BackoffMax bound the wait after a failed refresh, which
	// doubles each time.
	BackoffMin, BackoffMax time.Duration
	// ParkAfter is after how many failed refreshes in a row a conversation whose
	// agent server is away is parked.
	ParkAfter int
	// ParkInterval is how often a parked conversation is tried without a sign of
	// life.
	ParkInterval time.Duration
	// ObserveGrace is how long after a 2xx answer a listing may still be reported.
	ObserveGrace time.Duration
	// ReadyInterval is how often a server that isn't ready is looked at while
	// refreshes wait for it; see [Reconciler.Wake].
	ReadyInterval time.Duration
	// ClaimInterval is about how long a conversation is left alone that another replica
	// has a claim on.
	ClaimInterval time.Duration
	// ResyncInterval is how often everything is looked at without any reason.
	ResyncInterval time.Duration
	// ShutdownTimeout is how long running refreshes may go on after Run's context
	// has ended.
	ShutdownTimeout time.Duration
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Concurrency:     128,
		CallTimeout:     time.Minute,
		BackoffMin:      time.Second,
		BackoffMax:      5 * time.Minute,
		ParkAfter:       6,
		ParkInterval:    5 * time.Minute,
		ObserveGrace:    100 * time.Millisecond,
		ReadyInterval:   500 * time.Millisecond,
		ClaimInterval:   time.Second,
		ResyncInterval:  30 * time.Second,
		ShutdownTimeout: 3 * time.Second,
	}
}

func (c Config) validate() error {
	var problems []error
	atLeast := func(field string, value, least time.Duration) {
		if value < least {
			problems = append(problems, fmt.Errorf("%s is %v: it must be at least %v", field, value, least))
		}
	}
	for field, n := range map[string]int{"Concurrency": c.Concurrency, "ParkAfter": c.ParkAfter} {
		if n < 1 {
			problems = append(problems, fmt.Errorf("%s is %d: it must be at least 1", field, n))
		}
	}
	atLeast("CallTimeout", c.CallTimeout, 1)
	atLeast("BackoffMin", c.BackoffMin, 1)
	atLeast("BackoffMax", c.BackoffMax, c.BackoffMin)
	atLeast("ParkInterval", c.ParkInterval, 1)
	atLeast("ObserveGrace", c.ObserveGrace, 0)
	atLeast("ReadyInterval", c.ReadyInterval, 1)
	atLeast("ClaimInterval", c.ClaimInterval, 1)
	atLeast("ResyncInterval", c.ResyncInterval, 1)
	atLeast("ShutdownTimeout", c.ShutdownTimeout, 1)

	return errors.Join(problems...)
}
