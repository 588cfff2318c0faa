//go:build unix

package proc

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
)

// ReserveAddr is Reserve for a test, which gives the port back when it ends.
func ReserveAddr(tb testing.TB) string {
	tb.Helper()
	addr, release, err := Reserve()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(release)
	return addr
}

// Reserve returns a loopback address whose port no other program gets until it
// is released, so that a process can be started on it again and again. While no
// process listens there, connections are refused.
//
// The port is held by a socket that is bound and never listens: a listener with
// SO_REUSEADDR, as Go's are, may share the port with it, but the kernel doesn't
// hand it out to anybody who asks for just any port.
func Reserve() (addr string, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		return "", nil, fmt.Errorf("reserving a port: %w", err)
	}
	release = func() { _ = syscall.Close(fd) }
	if addr, err = bindLoopback(fd); err != nil {
		release()
		return "", nil, fmt.Errorf("reserving a port: %w", err)
	}
	return addr, release, nil
}

func bindLoopback(fd int) (addr string, err error) {
	syscall.CloseOnExec(fd)
	if err := syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1); err != nil {
		return "", err
	}
	loopback := netip.MustParseAddr("127.0.0.1").As4()
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: loopback}); err != nil {
		return "", err
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		return "", err
	}
	inet, ok := bound.(*syscall.SockaddrInet4)
	if !ok {
		return "", fmt.Errorf("bound to %T", bound)
	}
	return fmt.Sprintf("127.0.0.1:%d", inet.Port), nil
}
