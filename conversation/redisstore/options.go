package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// Options of a store. Start from DefaultOptions.
type Options struct {
	// URL is where the server is: redis://[USER@]HOST:PORT[/DB], or rediss:// for TLS. Parameters: addr=HOST:PORT names one more node
	// (repeatable), master=NAME makes the addresses those of sentinels, cluster=true those of a cluster. It holds no password.
	URL string
	// PasswordFile has the password, and is read for every connection; "" is none.
	PasswordFile string
	// CAFile has the PEM certificates to trust instead of the system's. It is read for every connection.
	CAFile string
	// Prefix begins the names of all keys and of the channel, so that several groups can share one server.
	Prefix string
	// Life is how long a conversation without a life of its own is kept after its last sign of life; 0 is for good. Those that the operator
	// registered are kept for good.
	Life time.Duration
	// Timeout bounds connecting, and each answer of the server.
	Timeout time.Duration
	// ProbeInterval is how often a server that is away is tried.
	ProbeInterval time.Duration
	// PingInterval is how long the feed may be silent before the server is asked whether it is there.
	PingInterval time.Duration
	// Logger tells when the server goes away and comes back; nil is silent.
	Logger *slog.Logger
	// OnUp is told when the server goes away and comes back. It must return at once; nil is nobody.
	OnUp func(up bool)
}

// DefaultOptions returns the defaults; the URL has none.
func DefaultOptions() Options {
	return Options{
		Prefix: "mcp-sidecar", Timeout: 2 * time.Second, ProbeInterval: 250 * time.Millisecond, PingInterval: 5 * time.Second,
	}
}

// The parts of a name are letters, digits and a few signs that mean nothing in patterns, access rules and hash tags.
var prefixRE = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]{0,99}$`)

// Validate reports everything that is wrong with the options, apart from what only the server can tell. No error has the URL's credentials.
func (o Options) Validate() error {
	_, err := o.client()
	if !prefixRE.MatchString(o.Prefix) {
		err = errors.Join(err, fmt.Errorf("the prefix must be 1 to 100 letters, digits or ._:/- and begin with a letter or digit, got %.40q", o.Prefix))
	}
	return err
}

// client makes what go-redis wants to know.
func (o Options) client() (*redis.UniversalOptions, error) {
	u, err := url.Parse(o.URL)
	if err != nil || u.Host == "" || u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, errors.New("want a URL such as redis://HOST:6379/0, or rediss:// for TLS")
	}
	if _, set := u.User.Password(); set {
		return nil, errors.New("the URL must not hold the password: put it into a file and name that with --redis-password-file")
	}
	c := &redis.UniversalOptions{
		Addrs: []string{withPort(u.Host)}, Username: u.User.Username(), Protocol: 2, ClientName: "mcp-sidecar",
		MaxRetries: -1, DialerRetries: 1, DialTimeout: o.Timeout, ReadTimeout: o.Timeout, WriteTimeout: o.Timeout,
		ContextTimeoutEnabled: true, PoolSize: poolSize, PipelinePoolSize: -1, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if db := strings.Trim(u.Path, "/"); db != "" {
		if c.DB, err = strconv.Atoi(db); err != nil || c.DB < 0 {
			return nil, fmt.Errorf("the path of the URL is the number of a database, got %.40q", db)
		}
	}
	for name, values := range u.Query() {
		switch name {
		case "addr":
			for _, a := range values {
				c.Addrs = append(c.Addrs, withPort(a))
			}
		case "master":
			c.MasterName = values[0]
		case "cluster":
			c.IsClusterMode = values[0] == "true"
		default:
			return nil, fmt.Errorf("the URL has an unknown parameter %.40q: known are addr, master and cluster", name)
		}
	}
	if c.DB != 0 && (c.IsClusterMode || len(c.Addrs) > 1 && c.MasterName == "") {
		return nil, errors.New("a cluster has only database 0")
	}
	if u.Scheme == "rediss" {
		c.Dialer = o.dialTLS
	} else if o.CAFile != "" {
		return nil, errors.New("a CA file is for a URL that begins with rediss://")
	}
	if o.PasswordFile != "" {
		c.CredentialsProviderContext = func(context.Context) (string, string, error) {
			b, err := os.ReadFile(o.PasswordFile)
			if err != nil {
				return "", "", fmt.Errorf("reading the password of Redis: %w", err)
			}
			return c.Username, strings.TrimSpace(string(b)), nil
		}
	}
	return c, nil
}

func withPort(host string) string {
	if _, _, err := net.SplitHostPort(host); err == nil {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), "6379")
}

// dialTLS connects to one node. The certificates that are trusted may have been replaced since the last time.
func (o Options) dialTLS(ctx context.Context, network, addr string) (net.Conn, error) {
	t, err := o.tls()
	if err != nil {
		return nil, err
	}
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: o.Timeout}, Config: t}
	return d.DialContext(ctx, network, addr)
}

func (o Options) tls() (*tls.Config, error) {
	t := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile == "" {
		return t, nil
	}
	pem, err := os.ReadFile(o.CAFile)
	if err != nil {
		return nil, fmt.Errorf("reading the CA file: %w", err)
	}
	t.RootCAs = x509.NewCertPool()
	if !t.RootCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("the CA file %q has no PEM certificate", o.CAFile)
	}
	return t, nil
}
