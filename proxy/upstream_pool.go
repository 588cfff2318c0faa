package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/proxy/http1"
)

// pool is the Upstream with connections of its own: HTTP/1.1, one request at a
// time on each. Requests are written and answers read on the goroutine of the
// caller, so that nothing is handed from one goroutine to another, and what became
// of a request is known exactly: whether a byte of it was written, and whether a
// byte of an answer came. A connection that died while it was idle is found before
// anything is written to it. Nothing is ever sent twice.
type pool struct {
	dialer net.Dialer
	tls    *tls.Config // for https; nil for the defaults
	heads  http1.Buffers

	mu    sync.Mutex
	idle  map[origin][]*poolConn // of each, the one that was used last comes last
	timer *time.Timer            // closes connections that stay idle; nil while there are none
}

var _ Upstream = (*pool)(nil)

// origin is who is at the other end of a connection.
type origin struct{ scheme, host string }

// newPool returns a pool without connections. No proxy of the environment is used:
// the backend is next door.
func newPool() *pool {
	return &pool{dialer: net.Dialer{Timeout: dialTimeout}, idle: make(map[origin][]*poolConn)}
}

// Do implements Upstream. The request's ContentLength must say how long its body
// is.
func (p *pool) Do(req *http.Request) (*http.Response, Trace, error) {
	var t Trace

	body, err := wholeBody(req)
	if err != nil {
		return nil, t, err
	}

	head := p.heads.Get()
	if *head, err = appendHead(*head, req, len(body)); err != nil {
		return nil, t, err
	}

	ctx := req.Context()
	if err := ctx.Err(); err != nil {
		return nil, t, err //nolint:wrapcheck // the caller classifies it
	}

	c, err := p.connect(ctx, req.URL)
	if err != nil {
		if ctx.Err() != nil {
			err = ctx.Err()
		}

		return nil, t, err
	}

	t.Connected, t.Reused = true, c.used
	stop := whenOver(ctx, c.over)
	a := new(pooled)

	resp, err := c.exchange(req, head, body, a, &t)
	if err != nil {
		stop()

		if ctx.Err() != nil {
			err = ctx.Err()
		}

		return nil, t, err
	}

	b := &a.body
	b.body, b.c, b.ctx, b.stop, b.last = resp.Body, c, ctx, stop, resp.Close

	if resp.Body == http.NoBody {
		b.finish(true)
	} else {
		resp.Body = b
	}

	return resp, t, nil
}

// whenOver calls f on a goroutine of its own when ctx ends, unless stop is called
// before.
func whenOver(ctx context.Context, f func()) (stop func() bool) {
	if c, ok := ctx.(interface{ AfterFunc(f func()) func() bool }); ok {
		return c.AfterFunc(f) // without what package context would put around it
	}

	return context.AfterFunc(ctx, f)
}

// CloseIdle implements Upstream.
func (p *pool) CloseIdle() {
	p.mu.Lock()
	idle := p.idle
	p.idle = make(map[origin][]*poolConn)

	if p.timer != nil {
		p.timer.Stop()
		p.timer = nil
	}
	p.mu.Unlock()

	for _, conns := range idle {
		for _, c := range conns {
			c.close()
		}
	}
}

// connect returns a connection that is ready for a request: an idle one that is
// alive, else a new one.
func (p *pool) connect(ctx context.Context, u *url.URL) (*poolConn, error) {
	o := origin{u.Scheme, u.Host}

	for {
		c := p.take(o)
		if c == nil {
			return p.dial(ctx, u, o)
		}

		if c.alive() {
			return c, nil
		}

		c.close()
	}
}

func (p *pool) dial(ctx context.Context, u *url.URL, o origin) (*poolConn, error) {
	conn, err := p.dialer.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), effectivePort(u)))
	if err != nil {
		return nil, err //nolint:wrapcheck // it says what and where
	}

	c := newPoolConn(p, o, conn)

	if u.Scheme != "https" {
		return c, nil
	}

	cfg := &tls.Config{MinVersion: tls.VersionTLS12}
	if p.tls != nil {
		cfg = p.tls.Clone()
	}

	cfg.NextProtos = []string{"http/1.1"}

	if cfg.ServerName == "" {
		cfg.ServerName = u.Hostname()
	}

	secure := tls.Client(conn, cfg)

	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()

	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, fmt.Errorf("TLS handshake with %s: %w", o.host, err)
	}

	c.conn = secure

	return c, nil
}

// take returns the idle connection that was used last, nil when there is none.
func (p *pool) take(o origin) *poolConn {
	p.mu.Lock()
	defer p.mu.Unlock()

	conns := p.idle[o]
	if len(conns) == 0 {
		return nil
	}

	last := len(conns) - 1
	c := conns[last]
	conns[last] = nil
	p.idle[o] = conns[:last]

	return c
}

// put keeps a connection for the next request.
func (p *pool) put(c *poolConn) {
	c.since = time.Now()

	p.mu.Lock()
	defer p.mu.Unlock()

	if len(p.idle[c.origin]) >= idlePerHost {
		c.close()
		return
	}

	p.idle[c.origin] = append(p.idle[c.origin], c)

	if p.timer == nil {
		p.timer = time.AfterFunc(idleTimeout, p.sweep)
	}
}

// sweep closes what has been idle for too long.
func (p *pool) sweep() {
	now := time.Now()

	p.mu.Lock()
	defer p.mu.Unlock()

	p.timer = nil
	next := time.Duration(0)

	for o, conns := range p.idle {
		old := 0
		for old < len(conns) && now.Sub(conns[old].since) >= idleTimeout {
			conns[old].close()

			old++
		}

		if conns = append(conns[:0], conns[old:]...); len(conns) == 0 {
			delete(p.idle, o)
			continue
		}

		clear(conns[len(conns) : len(conns)+old])

		p.idle[o] = conns

		if left := idleTimeout - now.Sub(conns[0].since); next == 0 || left < next {
			next = left
		}
	}

	if next > 0 {
		p.timer = time.AfterFunc(next, p.sweep)
	}
}
