package main

import (
	"net"
	"sync/atomic"
	"time"
)

// stallTimeout is how long a client may refuse to take what is written to it.
// Answers and streams may last as long as they like, so that the servers have no
// limit for writing a whole one.
const stallTimeout = 10 * time.Second

// stallListener accepts connections on which a write that gets nowhere fails.
type stallListener struct {
	net.Listener
	limit time.Duration
}

// Accept implements net.Listener.
func (l stallListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // the server compares it
	}
	return &stallConn{Conn: c, limit: l.limit, born: time.Now()}, nil
}

// stallConn gives each write the limit, or at least half of it: a deadline costs
// more than a look at the clock.
type stallConn struct {
	net.Conn
	limit time.Duration
	born  time.Time
	half  atomic.Int64 // age at which half of the deadline's time is over, in nanoseconds
}

// Write implements net.Conn. It writes in pieces, so that a slow reader of much
// isn't taken for one that doesn't read.
func (c *stallConn) Write(b []byte) (n int, err error) {
	const piece = 256 << 10
	for {
		if age := time.Since(c.born); int64(age) >= c.half.Load() {
			if err := c.Conn.SetWriteDeadline(c.born.Add(age + c.limit)); err != nil {
				return n, err //nolint:wrapcheck // the server compares it
			}
			c.half.Store(int64(age + c.limit/2))
		}
		end := min(n+piece, len(b))
		m, err := c.Conn.Write(b[n:end])
		if n += m; err != nil || n >= len(b) {
			return n, err //nolint:wrapcheck // the server compares it
		}
	}
}

// SetWriteDeadline implements net.Conn.
func (c *stallConn) SetWriteDeadline(t time.Time) error {
	c.half.Store(0)
	return c.Conn.SetWriteDeadline(t) //nolint:wrapcheck // the server compares it
}

// SetDeadline implements net.Conn.
func (c *stallConn) SetDeadline(t time.Time) error {
	c.half.Store(0)
	return c.Conn.SetDeadline(t) //nolint:wrapcheck // the server compares it
}
