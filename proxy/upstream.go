package proxy

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"sync/atomic"
	"time"
)

// Upstream carries requests to a backend. It sends each request at most once:
// whether it may be sent again is the proxy's decision, which it takes by the
// Trace. Implementations must be safe for concurrent use.
type Upstream interface {
	// Do sends a request and returns once the header of the answer is there; the
	// body of the answer must be closed. The Trace is meaningful with and
	// without an error. Do never follows redirects, and the request's body may
	// still be read after it returned.
	Do(req *http.Request) (*http.Response, Trace, error)
	// CloseIdle closes connections that carry no request, for when the process
	// behind them was replaced.
	CloseIdle()
}

// Trace says how far a request got.
type Trace struct {
	// Connected says that there was a connection, and Reused that it had served
	// a request before, so that its end may have nothing to do with this one.
	Connected, Reused bool
	// Wrote says that a byte of the request may have left, WroteRequest that all
	// of it did.
	Wrote, WroteRequest bool
	// Answered says that a byte of the answer came.
	Answered bool
}

// failureKind says what a failed request can have done.
type failureKind int

const (
	// notSent: no byte of it left, so it had no effect.
	notSent failureKind = iota + 1
	// sentNoAnswer: it may have run, and nothing of an answer came.
	sentNoAnswer
	// midAnswer: the answer broke off.
	midAnswer
	// clientGone: the client gave up; this says nothing about the backend.
	clientGone
)

// failure classifies the error of Do, or of reading the body of its answer.
func failure(err error, t Trace) failureKind {
	switch {
	case errors.Is(err, context.Canceled):
		return clientGone
	case t.Answered:
		return midAnswer
	case t.Wrote:
		return sentNoAnswer
	default:
		return notSent
	}
}

const (
	dialTimeout = 3 * time.Second
	idlePerHost = 512
	maxHeader   = 64 << 10

	// idleTimeout is below the 5 s after which many servers close an idle
	// connection: a request that crosses the close can't be told from one that
	// was running when the server died.
	idleTimeout = 4 * time.Second
)

// errStale fails the first write to a connection that the backend has closed.
var errStale = errors.New("the backend closed the idle connection")

// transport is the Upstream on top of net/http.
type transport struct {
	rt *http.Transport
}

var _ Upstream = (*transport)(nil)

// newTransport returns a transport of its own pool of connections.
func newTransport() *transport {
	d := &net.Dialer{Timeout: dialTimeout}

	return &transport{rt: &http.Transport{
		// No Proxy: the backend is next door, whatever the environment says.
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			c, err := d.DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}

			return countConn(c), nil
		},
		// Else net/http would ask for gzip on its own and unpack it.
		DisableCompression:  true,
		TLSHandshakeTimeout: dialTimeout,
		// One host takes all the traffic; nothing limits streams in time or
		// number.
		MaxIdleConnsPerHost:    idlePerHost,
		IdleConnTimeout:        idleTimeout,
		MaxResponseHeaderBytes: maxHeader,
	}}
}

// Do implements Upstream.
func (t *transport) Do(req *http.Request) (*http.Response, Trace, error) {
	var p probe

	r := req.WithContext(httptrace.WithClientTrace(req.Context(), &httptrace.ClientTrace{
		GotConn:              p.gotConn,
		WroteRequest:         p.wroteRequest,
		GotFirstResponseByte: p.answered,
	}))
	// net/http sends a request with a body again by itself when it can get the
	// body anew: where nothing was written, and, with an Idempotency-Key header
	// of the client's, even where it was.
	r.GetBody = nil

	resp, err := t.rt.RoundTrip(r)
	trace := p.trace()

	// The answer may be quicker than the count of what was written.
	trace.Wrote = trace.Wrote || trace.Answered

	if err != nil && req.Context().Err() != nil {
		// RoundTrip didn't wait for the write to end.
		trace.Wrote = trace.Connected
	}

	return resp, trace, err
}

// CloseIdle implements Upstream.
func (t *transport) CloseIdle() { t.rt.CloseIdleConnections() }

// probe collects a Trace. Its hooks run on goroutines of net/http.
type probe struct {
	mu    sync.Mutex
	t     Trace
	conn  *countedConn
	begun int64 // bytes written on conn before this request
}

func (p *probe) gotConn(info httptrace.GotConnInfo) {
	c := info.Conn
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}

	p.mu.Lock()
	defer p.mu.Unlock()

	p.t.Connected, p.t.Reused = true, info.Reused

	if p.conn, _ = c.(*countedConn); p.conn != nil {
		p.begun = p.conn.wrote.Load()
		p.conn.check(info.Reused)
	}
}

func (p *probe) wroteRequest(info httptrace.WroteRequestInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.t.WroteRequest = info.Err == nil
}

func (p *probe) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()

	p.t.Answered = true
}

func (p *probe) trace() Trace {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.conn != nil {
		p.t.Wrote = p.t.Wrote || p.conn.wrote.Load() > p.begun
	}

	return p.t
}

// countedConn counts what was written: the only exact answer to whether the
// backend can have seen something of a request. It also keeps a request off a
// connection that is known to be dead, since what was written there would have to
// count as sent.
type countedConn struct {
	net.Conn

	pulse *pulse
	wrote atomic.Int64
	stale atomic.Bool
}

func countConn(c net.Conn) *countedConn {
	return &countedConn{Conn: c, pulse: newPulse(c)}
}

// check looks at the connection before a request goes out on it.
func (c *countedConn) check(reused bool) {
	if reused && !c.pulse.alive() {
		c.stale.Store(true)
	}
}

func (c *countedConn) Write(b []byte) (int, error) {
	if c.stale.Load() {
		return 0, errStale
	}

	n, err := c.Conn.Write(b)
	c.wrote.Add(int64(n))

	return n, err
}
