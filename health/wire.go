package health

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// exchange is one question to the backend and what became of it below JSON-RPC. It travels in the context: mcp-go drops the
// status, the headers and, on 404, the body of an answer.
type exchange struct {
	session string // sent with the request
	version string // sent with the request
	stream  bool   // the answer is a stream without end: the limit holds for each event

	endpoint bool // it begins with where messages go: see [endpointBody]

	inSession bool // the backend knows the sender, by session or by stream

	mu sync.Mutex // mcp-go may read on after it gave up
	outcome
}

// outcome is what an [exchange] noted.
type outcome struct {
	connected bool // there was a connection
	reused    bool // which had served before
	conn      net.Conn

	answered  bool
	status    int
	mediaType string
	issued    string // session id in the answer
	identity  string
	challenge bool   // WWW-Authenticate is there
	body      []byte // the beginning of an error page or of a JSON answer
	large     bool   // the answer was cut at the limit
	broken    bool   // the answer ended before its end

	foreign string // host that an endpoint event named, though it isn't the backend's

	secrets []string // of the request, as far as an answer could repeat them
}

// noteSecrets notes what in a request is secret: credentials, the session and the query.
func (o *outcome) noteSecrets(req *http.Request, extra http.Header) {
	o.secrets = o.secrets[:0]
	add := func(s string) {
		if len(s) >= shortestSecret {
			o.secrets = append(o.secrets, s)
		}
	}
	for _, values := range extra {
		for _, v := range values {
			add(v)
			_, credentials, _ := strings.Cut(v, " ") // without the scheme
			add(credentials)
		}
	}
	add(req.Header.Get(mcp.HeaderSessionID))
	add(req.URL.RawQuery)
	for _, values := range req.URL.Query() {
		for _, v := range values {
			add(v)
		}
	}
}

// shortestSecret is the length of the shortest text that is taken for one: shorter ones are in every other word.
const shortestSecret = 6

// quote returns an error of the backend without what it repeats of the request's secrets.
func (o *outcome) quote(e *rpcError) *rpcError {
	clean := *e
	for _, s := range o.secrets {
		clean.Message = strings.ReplaceAll(clean.Message, s, "<redacted>")
	}
	return &clean
}

func (x *exchange) note(f func(*outcome)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f(&x.outcome)
}

func (x *exchange) result() outcome {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.outcome
}

type exchangeKey struct{}

// wire is the HTTP side of the probe. It adds what a request must carry, notes what mcp-go doesn't tell, and bounds answers.
// mcp-go never sees a session id, so that the session is kept, and ended, in one place: ours.
type wire struct {
	next     http.RoundTripper
	headers  *headerSource
	origin   *url.URL // who may get the headers
	identity string   // name of a header, or ""
	limit    int64    // bytes of an answer
}

// headLimit bounds what is kept of a body to tell what it is.
const headLimit = 4 << 10

// RoundTrip implements [http.RoundTripper].
func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	x, ok := req.Context().Value(exchangeKey{}).(*exchange)
	if !ok {
		x = &exchange{}
	}
	var extra http.Header
	if req.URL.Scheme == w.origin.Scheme && req.URL.Host == w.origin.Host {
		var err error
		if extra, err = w.headers.get(); err != nil {
			closeBody(req.Body)
			return nil, err
		}
	}
	req = req.Clone(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			x.note(func(o *outcome) { o.connected, o.reused, o.conn = true, info.Reused, info.Conn })
		},
	}))
	for name, values := range extra {
		switch name {
		case "Accept", "Content-Type", "Content-Length", "Last-Event-Id", mcp.HeaderSessionID, mcp.HeaderProtocolVersion, mcp.HeaderMethod, mcp.HeaderName:
			// These belong to the protocol.
		case "Host":
			req.Host = values[0]
		default:
			req.Header[name] = values
		}
	}
	if x.session != "" {
		req.Header.Set(mcp.HeaderSessionID, x.session)
	}
	if x.version != "" {
		req.Header.Set(mcp.HeaderProtocolVersion, x.version)
	}

	x.note(func(o *outcome) { o.noteSecrets(req, extra) })

	resp, err := w.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	var head []byte
	if resp.StatusCode >= http.StatusMultipleChoices {
		head, err = io.ReadAll(io.LimitReader(resp.Body, headLimit))
		if err != nil && len(head) == 0 && !errors.Is(err, io.ErrUnexpectedEOF) {
			closeBody(resp.Body)
			return nil, err
		}
		closeBody(resp.Body)
		resp.Body = io.NopCloser(bytes.NewReader(head))
	} else {
		resp.Body = &boundedBody{body: resp.Body, x: x, limit: w.limit}
		if x.endpoint {
			resp.Body = newEndpointBody(resp.Body, req, x)
		}
	}
	x.note(func(o *outcome) {
		o.answered, o.status, o.body = true, resp.StatusCode, head
		o.mediaType, _, _ = strings.Cut(resp.Header.Get("Content-Type"), ";")
		o.challenge = resp.Header.Get("WWW-Authenticate") != ""
		o.issued = cmp.Or(resp.Header.Get(mcp.HeaderSessionID), o.issued)
		if w.identity != "" {
			o.identity = cmp.Or(resp.Header.Get(w.identity), o.identity)
		}
	})
	resp.Header.Del(mcp.HeaderSessionID)
	return resp, nil
}

// CloseIdleConnections lets [http.Client.CloseIdleConnections] through.
func (w *wire) CloseIdleConnections() {
	if c, ok := w.next.(interface{ CloseIdleConnections() }); ok {
		c.CloseIdleConnections()
	}
}

func closeBody(body io.Closer) {
	if body != nil {
		_ = body.Close()
	}
}

var errTooLarge = errors.New("the answer is larger than allowed")

// boundedBody ends an answer that is too large, counting from its beginning or, for a stream, from the last empty line.
type boundedBody struct {
	body  io.ReadCloser
	x     *exchange
	limit int64
	read  int64
	blank bool // the last byte ended a line
}

// Read implements [io.Reader].
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.body.Read(p)
	b.read += int64(n)
	if b.x.stream {
		b.countFromLastEvent(p[:n])
	}
	b.x.note(func(o *outcome) {
		o.large = o.large || b.read > b.limit
		o.broken = o.broken || err != nil && !errors.Is(err, io.EOF)
		o.body = append(o.body, p[:min(n, headLimit-len(o.body))]...)
	})
	if b.read > b.limit {
		return 0, errTooLarge
	}
	return n, err
}

func (b *boundedBody) countFromLastEvent(p []byte) {
	for i, c := range p {
		switch {
		case c == '\r':
		case c == '\n' && b.blank:
			b.read = int64(len(p) - i - 1)
		default:
			b.blank = c == '\n'
		}
	}
}

// Close implements [io.Closer].
func (b *boundedBody) Close() error { return b.body.Close() }

var errCredentials = errors.New("reading the probe's headers")

// headerSource asks for the headers of the sidecar's own requests. A file that can't be read for a moment, or is being
// replaced, must not turn a probe into one without credentials: the last good answer stays.
type headerSource struct {
	ask func() (http.Header, error)
	log *slog.Logger

	mu   sync.Mutex
	last http.Header
	bad  bool
}

// get returns a copy with canonical names.
func (s *headerSource) get() (http.Header, error) {
	if s.ask == nil {
		return nil, nil //nolint:nilnil // no headers is fine
	}
	h, err := s.ask()
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.last, s.bad = http.Header{}, false
		for name, values := range h {
			if len(values) > 0 {
				s.last[http.CanonicalHeaderKey(name)] = values
			}
		}
	case s.last == nil:
		return nil, fmt.Errorf("%w: %w", errCredentials, err)
	case !s.bad:
		s.bad = true
		s.log.Warn("cannot read the headers of the probe, using the last ones on", "err", err)
	}
	return maps.Clone(s.last), nil
}

// sameOrigin lets a client follow redirects within the backend, with method and body intact. Headers of the sidecar never
// reach another host.
func sameOrigin(req *http.Request, via []*http.Request) error {
	const most = 5
	first := via[0]
	if len(via) > most || req.URL.Scheme != first.URL.Scheme || !sameHost(req.URL, first.URL) || req.Method != first.Method {
		return http.ErrUseLastResponse
	}
	req.URL.Host = first.URL.Host
	return nil
}

// sameHost reports whether two addresses are of one server. The names that a machine has for itself are one.
func sameHost(a, b *url.URL) bool {
	self := func(u *url.URL) bool {
		host := strings.ToLower(u.Hostname())
		return host == "localhost" || host == "127.0.0.1" || host == "::1"
	}
	port := func(u *url.URL) string {
		if u.Port() == "" {
			return map[string]string{"http": "80", "https": "443"}[u.Scheme]
		}
		return u.Port()
	}
	return (strings.EqualFold(a.Hostname(), b.Hostname()) || self(a) && self(b)) && port(a) == port(b)
}

func newTransport(d Deps, cfg *Config) *http.Transport {
	return &http.Transport{
		DialContext:           d.Dial,
		DisableCompression:    true,
		MaxIdleConnsPerHost:   2,
		TLSHandshakeTimeout:   cfg.ProbeTimeout,
		ResponseHeaderTimeout: 0, // each request has a deadline
		ExpectContinueTimeout: time.Second,
	}
}

// withExchange returns a context whose request is noted in x.
func withExchange(ctx context.Context, x *exchange) context.Context {
	return context.WithValue(ctx, exchangeKey{}, x)
}
