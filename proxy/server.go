package proxy

import (
	"context"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
)

// server is one backend and everything that is kept for it.
type server struct {
	p        *Proxy
	name     string
	logger   *slog.Logger
	metrics  *serverMetrics
	gate     *gate
	sessions sessions
	sse      sync.Map // *sseSession by the id that the client has
	settings atomic.Pointer[Server]
	selfServed
	subscriptions subscriptions
	discoveries   discoveries
	walks         walks
	generation    atomic.Uint64 // the newest that has settled
	seed          maphash.Seed
	reopen        chan struct{} // bounds how many streams are re-opened at one time
}

// reopenAtOnce bounds how many listening sessions re-open their stream at one
// time: after a swap all of them have to.
const reopenAtOnce = 16

func (p *Proxy) newServer(conf Server) *server {
	s := &server{
		p: p, name: conf.Name, logger: p.logger.With("server", conf.Name), metrics: p.metrics.of(conf.Name),
		gate: newGate(p.suspectFunc != nil), sessions: sessions{byID: make(map[string]*session)},
		seed: maphash.MakeSeed(), reopen: make(chan struct{}, reopenAtOnce),
	}
	s.settings.Store(&conf)

	return s
}

func (s *server) conf() *Server { return s.settings.Load() }

// suspect closes the gate and asks for a look at the backend.
func (s *server) suspect(reason string) {
	s.gate.suspect()
	s.upstream().CloseIdle()
	s.ask(reason)
}

// doubt holds lists back and asks for a look at the backend.
func (s *server) doubt(reason string) {
	s.gate.doubt()
	s.ask(reason)
}

func (s *server) ask(reason string) {
	if s.p.suspectFunc != nil {
		s.p.suspectFunc(s.name, reason)
	}
}

// outgoing is one request to the backend.
type outgoing struct {
	method  string
	header  http.Header // not changed, unless it is own
	own     bool        // the header is for this request alone
	session string      // the backend's session id, "" for none
	version string      // protocol version to name, "" for what the header says
	query   string      // raw query of the client
	suffix  string      // path below the endpoint's, for transports that have any
	url     *url.URL    // another address on the backend, nil for its endpoint
	accept  string      // "" for what the header says
	json    bool        // the body is the sidecar's own JSON
	body    []byte
}

// send sends one request to the backend, following redirects within it.
func (s *server) send(ctx context.Context, o outgoing) (*http.Response, Trace, error) {
	u := o.address(s.conf().Upstream)

	h := o.header
	if !o.own {
		h = maps.Clone(h) // nobody changes the values
	}

	delete(h, headerSession)
	setHeader(h, headerSession, o.session)
	setHeader(h, headerVersion, o.version)
	setHeader(h, "Accept", o.accept)

	if o.json {
		setHeader(h, "Content-Type", typeJSON)
	}

	req := (&http.Request{
		Method: o.method, URL: u, Host: u.Host, Header: h,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}).WithContext(ctx)

	return send(s.upstream(), req, o.body)
}

// address is where on the backend with this endpoint the request goes. Nobody
// changes what it returns.
func (o *outgoing) address(endpoint *url.URL) *url.URL {
	switch {
	case o.url != nil:
		return o.url
	case o.suffix == "" && o.query == "":
		return endpoint
	}

	u := *endpoint
	u.RawQuery = joinQuery(endpoint.RawQuery, o.query)

	if o.suffix != "" {
		u.Path, u.RawPath = o.suffix, ""
	}

	return &u
}

func setHeader(h http.Header, name, value string) {
	if value != "" {
		h[name] = []string{value}
	}
}

func joinQuery(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}

	return a + "&" + b
}

// versionHeader is what a session's own requests put into the version header,
// which exists since 2025-06-18.
func versionHeader(version string) string {
	if version < "2025-06-18" {
		return ""
	}

	return version
}

// maxPeek is how much of an answer is read to decide what it means.
const maxPeek = 64 << 10

// discard reads what is left of a small answer, so that the connection can be used
// again, and closes it.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxPeek)
	_ = resp.Body.Close()
}
