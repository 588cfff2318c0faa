//go:build unix

package proxy

import (
	"errors"
	"net"
	"syscall"
)

// pulse looks at a connection without taking anything off it. It isn't safe for
// concurrent use.
type pulse struct {
	raw  syscall.RawConn // nil where there is none
	look func(fd uintptr)
	b    [1]byte
	err  error
}

func newPulse(c net.Conn) *pulse {
	p := &pulse{}

	if s, ok := c.(syscall.Conn); ok {
		p.raw, _ = s.SyscallConn()
	}

	p.look = func(fd uintptr) {
		_, _, p.err = syscall.Recvfrom(int(fd), p.b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	}

	return p
}

// alive reports whether the other end of an idle connection has neither closed it
// nor sent anything, which nothing asked it for.
func (p *pulse) alive() bool {
	if p.raw == nil {
		return true
	}

	// Control and not Read: net/http is reading from its connections all the time.
	err := p.raw.Control(p.look)

	return err == nil && (errors.Is(p.err, syscall.EAGAIN) || errors.Is(p.err, syscall.EWOULDBLOCK) || errors.Is(p.err, syscall.EINTR))
}
