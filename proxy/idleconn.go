//go:build unix

package proxy

import (
	"context"
	"errors"
	"net"
	"syscall"
)

// errPeerClosed is returned for a write that would have gone nowhere.
var errPeerClosed = errors.New("the backend has closed the connection")

// watchIdle makes a transport notice before it writes that the backend has closed
// a connection. net/http notices by itself, but a little later: a request that is
// written meanwhile is lost, and nobody can say that it had no effect.
func watchIdle(t *transport) *transport {
	dial := t.rt.DialContext

	t.rt.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}

		counted, ok := c.(*countedConn)
		if !ok {
			return c, nil
		}

		if sc, ok := counted.Conn.(syscall.Conn); ok {
			if raw, err := sc.SyscallConn(); err == nil {
				counted.Conn = &watchedConn{counted.Conn, raw}
			}
		}

		return c, nil
	}

	return t
}

// watchedConn writes only while the other side hasn't closed.
type watchedConn struct {
	net.Conn

	raw syscall.RawConn
}

func (c *watchedConn) Write(b []byte) (int, error) {
	if c.closedByPeer() {
		return 0, errPeerClosed
	}

	return c.Conn.Write(b)
}

// closedByPeer looks at what has arrived without taking it, and without waiting.
func (c *watchedConn) closedByPeer() (closed bool) {
	// Control, not Read: net/http is reading all the time.
	err := c.raw.Control(func(fd uintptr) {
		var b [1]byte

		n, _, err := syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)

		switch {
		case err == nil:
			closed = n == 0
		case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
		default:
			closed = true
		}
	})

	return closed && err == nil
}
