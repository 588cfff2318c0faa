package http1

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"
)

const (
	// handshakeTimeout bounds the TLS handshake of a client, when nothing bounds
	// its header.
	handshakeTimeout = 10 * time.Second
	// newConnection is how long a connection may be without a request before it
	// counts as idle when the server shuts down.
	newConnection = 5 * time.Second
	// linger is how long a connection with an unread request is kept after the
	// answer: closing at once would destroy the answer on its way.
	linger = 500 * time.Millisecond
)

// What a connection is about.
const (
	fresh  int32 = iota // nothing came yet
	idle                // between two requests
	active              // in a request
	closed              // by the end of the server
)

// conn is a connection of a client. All but closeIdle, the watch and the end of a
// request's context happens on one goroutine.
type conn struct {
	srv    *Server
	conn   net.Conn
	tls    *tls.ConnectionState
	remote string
	born   time.Time
	state  atomic.Int32
	ctx    atomic.Pointer[requestContext] // of the request that is being served
	heads  heads
	in     *[]byte   // what is read ahead; nil without it
	next   int       // where in it reading goes on
	until  time.Time // deadline of reads
	watch  watch
}

func newConn(s *Server, nc net.Conn) *conn {
	c := &conn{srv: s, conn: nc, born: time.Now(), remote: nc.RemoteAddr().String()}
	c.watch.c = c

	return c
}

// serve serves requests one after the other, until the connection ends or is
// somebody else's.
func (c *conn) serve() {
	other := c.requests()

	c.srv.forget(c)

	if other == nil {
		_ = c.conn.Close()
		return
	}

	c.srv.others.give(other)
}

// requests returns the connection with which net/http is to go on, nil when there is
// none.
func (c *conn) requests() (other net.Conn) {
	defer func() {
		v := recover()
		if err, ok := v.(error); v == nil || ok && errors.Is(err, http.ErrAbortHandler) {
			return
		}

		c.srv.log.Error("serving a request panicked: please report this", "panic", v, "stack", string(debug.Stack()))
	}()

	defer c.release()

	if t, ok := c.conn.(*tls.Conn); ok {
		if err := c.handshake(t); err != nil || c.tls.NegotiatedProtocol == "h2" {
			return t // net/http knows what to say to a client that doesn't speak TLS
		}
	}

	c.deadline(c.srv.std.ReadHeaderTimeout, 0)

	for {
		x, err := c.readHead()

		switch {
		case err != nil:
			return nil
		case x == nil:
			return c.asItCame()
		case !c.respond(x) || !c.state.CompareAndSwap(active, idle):
			return nil
		}
	}
}

func (c *conn) handshake(t *tls.Conn) error {
	limit := c.srv.std.ReadHeaderTimeout
	if limit <= 0 {
		limit = handshakeTimeout
	}

	ctx, cancel := context.WithTimeout(c.srv.base, limit)
	defer cancel()

	if err := t.HandshakeContext(ctx); err != nil {
		return err //nolint:wrapcheck // net/http tells
	}

	s := t.ConnectionState()
	c.tls = &s

	return nil
}

// asItCame is the connection with what was read ahead.
func (c *conn) asItCame() net.Conn {
	ahead := slices.Clone(c.ahead())
	c.release()

	_ = c.conn.SetReadDeadline(time.Time{})

	b := &begun{Conn: c.conn, read: ahead}
	if c.tls != nil {
		return begunTLS{b, c.tls}
	}

	return b
}

// readHead waits for a request and reads its head. It returns nil without an error
// for one that is left to net/http.
func (c *conn) readHead() (*exchange, error) {
	for timed := c.state.Load() == fresh; ; { // the first one's time runs since the connection began
		b := c.ahead()
		if len(b) > 0 && !c.activate() {
			return nil, net.ErrClosed
		}

		n, ok := headLength(b)
		if !ok {
			return nil, nil //nolint:nilnil // see above
		}

		if n > 0 {
			x := newExchange(c)
			if !c.heads.read(b[:n], x.req) {
				return nil, nil //nolint:nilnil // see above
			}

			c.next += n

			if x.body.left = x.req.ContentLength; x.body.left == 0 {
				x.req.Body = http.NoBody
			} else {
				x.req.Body = &x.body
			}

			return x, nil
		}

		switch std := c.srv.std; {
		case timed:
		case len(b) > 0:
			timed = true

			c.deadline(std.ReadHeaderTimeout, 0)
		default:
			c.deadline(std.IdleTimeout, std.IdleTimeout/8)
		}

		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// activate notes that a request has begun. It returns false when the connection was
// closed as an idle one.
func (c *conn) activate() bool {
	return c.state.CompareAndSwap(idle, active) || c.state.CompareAndSwap(fresh, active) ||
		c.state.Load() == active
}

// closeIdle closes the connection if it carries no request.
func (c *conn) closeIdle() {
	if c.state.CompareAndSwap(idle, closed) ||
		time.Since(c.born) > newConnection && c.state.CompareAndSwap(fresh, closed) {
		_ = c.conn.Close()
	}
}

// deadline gives reads from now on a limit, or a little less than that: a deadline
// costs more than a look at the clock. No limit is 0.
func (c *conn) deadline(limit, less time.Duration) {
	if limit <= 0 {
		c.readUntil(time.Time{})
		return
	}

	t := time.Now().Add(limit)
	if c.until.IsZero() || c.until.After(t) || t.Sub(c.until) > less {
		c.readUntil(t)
	}
}

func (c *conn) readUntil(t time.Time) {
	if !t.Equal(c.until) {
		c.until = t
		_ = c.conn.SetReadDeadline(t) // the read fails, if this does
	}
}

// ahead is what was read and not used.
func (c *conn) ahead() []byte {
	if c.in == nil {
		return nil
	}

	return (*c.in)[c.next:]
}

// fill reads more ahead.
func (c *conn) fill() error {
	if c.in == nil {
		c.in = c.srv.buffers.Get()
	}

	b := (*c.in)[:copy(*c.in, c.ahead())]
	c.next = 0

	if len(b) == cap(b) {
		b = slices.Grow(b, cap(b))
	}

	var (
		n   int
		err error
	)

	if c.watch.has {
		c.watch.has = false
		n = copy(b[len(b):cap(b)], c.watch.seen[:])
	} else {
		n, err = c.conn.Read(b[len(b):cap(b)])
	}

	*c.in = b[:len(b)+n]

	if n > 0 {
		return nil
	}

	return err //nolint:wrapcheck // nobody is told
}

// release gives the buffer back, with what is in it.
func (c *conn) release() {
	if c.in != nil {
		c.srv.buffers.Put(c.in)
		c.in, c.next = nil, 0
	}
}

// respond serves a request, and reports whether there may be another.
func (c *conn) respond(x *exchange) bool {
	c.ctx.Store(&x.ctx)

	if c.srv.ended.Load() {
		x.ctx.end()
	}

	c.watch.begin(&x.ctx, x.body.left == 0)

	defer func() {
		c.ctx.Store(nil)
		x.ctx.end()
		c.watch.end()
		x.res.release()
	}()

	c.srv.std.Handler.ServeHTTP(&x.res, x.req)

	kept := x.res.finish()

	switch {
	case x.body.left == 0:
	case x.body.ahead():
		c.next += int(x.body.left) // nobody wanted to know
	default:
		c.linger()
		return false
	}

	return kept
}

// linger waits for the client to take the answer and stop sending.
func (c *conn) linger() {
	if w, ok := c.conn.(interface{ CloseWrite() error }); ok {
		_ = w.CloseWrite()
	}

	c.readUntil(time.Now().Add(linger))

	_, _ = io.Copy(io.Discard, c.conn)
}
