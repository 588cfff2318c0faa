//go:build unix

package proc

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
)

// ReserveAddr returns a loopback address whose port no other program gets until
// the test ends, so that a process can be started on it again and again. While
// no process listens there, connections are refused.
//
// The test holds the port by a socket that is bound and never listens: a listener
// with SO_REUSEADDR, as Go's are, may share the port with it, but the kernel
// doesn't hand it out to anybody who asks for just any port.
func ReserveAddr(tb testing.TB) string {
	tb.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		tb.Fatalf("reserving a port: %v", err)
	}
	tb.Cleanup(func() { _ = syscall.Close(fd) })
	syscall.CloseOnExec(fd)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		tb.Fatalf("reserving a port: %v", err)
	}
	loopback := netip.MustParseAddr("127.0.0.1").As4()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback}); err != nil {
		tb.Fatalf("reserving a port: %v", err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		tb.Fatalf("reserving a port: %v", err)
	}
	inet, ok := bound.(*syscall.SockaddrInet4)
	if !ok {
		tb.Fatalf("reserving a port: bound to %T", bound)
	}
	return fmt.Sprintf("127.0.0.1:%d", inet.Port)
}
