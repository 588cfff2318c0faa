//go:build unix

package proc

import (
	"net"
	"os"
	"os/exec"
	"testing"
	"time"
)

// Need returns the path of a program that a test can't do without. Where it is missing the test is skipped, and fails
// under CI=true, where everything has to be there.
func Need(tb testing.TB, program string) string {
	tb.Helper()
	path, err := exec.LookPath(program)
	if err == nil {
		return path
	}
	if os.Getenv("CI") == "true" {
		tb.Fatalf("%s is not installed, and CI=true needs it", program)
	}
	tb.Skipf("SKIPPED: %s is not installed", program)
	return ""
}

// WaitListening waits until somebody listens on a TCP address. It has more patience than Eventually: some programs take long
// to start.
func WaitListening(tb testing.TB, addr string) {
	tb.Helper()
	Within(tb, 4*Patience, "a listener on "+addr, func() bool {
		c, err := net.DialTimeout("tcp", addr, time.Second)
		if err != nil {
			return false
		}
		_ = c.Close()
		return true
	})
}
