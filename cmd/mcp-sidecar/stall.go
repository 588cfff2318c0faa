package main

import (
	"net"
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
	return stallConn{c, l.limit}, nil
}

type stallConn struct {
	net.Conn
	limit time.Duration
}

// Write implements net.Conn. Each write is given the whole time, in pieces so
// that a slow reader of much isn't taken for one that doesn't read.
func (c stallConn) Write(b []byte) (n int, err error) {
	const piece = 256 << 10
	for {
		if err := c.SetWriteDeadline(time.Now().Add(c.limit)); err != nil {
			return n, err //nolint:wrapcheck // the server compares it
		}
		end := min(n+piece, len(b))
		m, err := c.Conn.Write(b[n:end])
		if n += m; err != nil || n >= len(b) {
			return n, err //nolint:wrapcheck // the server compares it
		}
	}
}
