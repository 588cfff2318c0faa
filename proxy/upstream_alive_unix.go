//go:build unix

package proxy

import (
	"errors"
	"syscall"
)

// alive reports whether the other end of an idle connection has neither closed it
// nor sent anything, which nothing asked it for.
func alive(c syscall.RawConn) bool {
	var (
		b   [1]byte
		got error
	)

	// Control and not Read: net/http is reading from the connection all the time.
	err := c.Control(func(fd uintptr) {
		_, _, got = syscall.Recvfrom(int(fd), b[:], syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})

	return err == nil && (errors.Is(got, syscall.EAGAIN) || errors.Is(got, syscall.EWOULDBLOCK) || errors.Is(got, syscall.EINTR))
}
