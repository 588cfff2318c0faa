package health

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"time"
)

// ListOptions say whose tools to list.
type ListOptions struct {
	URL       *url.URL
	Transport string                      // [TransportHTTP] if empty, or [TransportSSE]
	Headers   func() (http.Header, error) // for servers that want credentials; optional

	RoundTripper http.RoundTripper // optional
	IncludeMeta  bool              // hash `_meta` and `icons` too

	ClientVersion string // what the client calls itself, besides mcp-sidecar
}

// List connects to a server of any revision, lists its tools once, and ends its session. The limits are those of
// [DefaultConfig]. The error says what a person can do about it; it wraps an [*Error].
func List(ctx context.Context, o ListOptions) (Toolset, error) {
	cfg := DefaultConfig()
	cfg.Server, cfg.URL, cfg.Headers, cfg.IncludeMeta = "list", o.URL, o.Headers, o.IncludeMeta
	cfg.ConnectTimeout = cfg.ListTimeout
	if o.Transport != "" {
		cfg.Transport = o.Transport
	}
	if o.ClientVersion != "" {
		cfg.ClientVersion = o.ClientVersion
	}
	if err := cfg.validate(); err != nil {
		return Toolset{}, fmt.Errorf("listing tools: %w", err)
	}
	nothing := func() {}
	p, err := newProbe(&cfg, Deps{Transport: o.RoundTripper}, NewMetrics(nil), slog.New(slog.DiscardHandler), signals{nothing, nothing, nothing}, false)
	if err != nil {
		return Toolset{}, fmt.Errorf("listing tools: %w", err)
	}
	defer p.close(context.WithoutCancel(ctx))
	h, err := p.connect(ctx, false)
	if err != nil {
		return Toolset{}, explain(o.URL, err)
	}
	raw, err := p.list(ctx)
	if err != nil {
		return Toolset{}, explain(o.URL, err)
	}
	ts, err := HashTools(raw, HashOptions{IncludeMeta: o.IncludeMeta, MaxTools: cfg.MaxTools})
	if err != nil {
		return Toolset{}, explain(o.URL, err)
	}
	ts.ServerName, ts.ServerVersion, ts.ListedAt = h.name, h.version, time.Now()
	return ts, nil
}

// explain adds what to check. The query of the URL may hold a secret and is left out.
func explain(u *url.URL, err error) error {
	where := u.Scheme + "://" + u.Host + u.EscapedPath()
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return fmt.Errorf("listing the tools of %s: %w", where, err)
	}
	var hint string
	switch e.Reason {
	case ReasonRefused:
		hint = "is the server running, and is this its port?"
	case ReasonUnreachable:
		hint = "check the host name, the network and, for https, the certificate"
	case ReasonTimeout:
		hint = "the server may be busy, or frozen"
	case ReasonNotReady:
		hint = "check the path; a server of the old HTTP+SSE transport must be named as such"
	case ReasonUnauthorized:
		hint = "give the headers that it wants, such as Authorization"
	case ReasonCredentials:
		hint = "check the file with the headers"
	default:
		return fmt.Errorf("listing the tools of %s: %w", where, err)
	}
	return fmt.Errorf("listing the tools of %s: %w (%s)", where, err, hint)
}
