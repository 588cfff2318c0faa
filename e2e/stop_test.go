//go:build unix

package e2e

import (
	"context"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

const terminate = syscall.SIGTERM

// TestStop ends a sidecar that has streams, running calls and pending refreshes.
// Its limit for the end is longer than a test waits: nothing may ride on it.
func TestStop(t *testing.T) {
	long(t)
	t.Parallel()
	const streams, calls, conversations = 50, 5, 10
	f := startFleet(t, conversations, config(t, "drainDelay: 6s", "drainTimeout: 10m")...)
	f.b.terminate()
	f.b.start("v1", "-slow", "3s")
	f.waitSwap(1, 1)
	var clients []*client
	for range streams {
		c := connect(t, f.url())
		c.stream()
		clients = append(clients, c)
	}
	f.a.intercept(func(w http.ResponseWriter, r *http.Request, _ string) bool {
		<-r.Context().Done() // when the sidecar gives up
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	f.b.admin("tools?version=v2")
	f.waitSettled(2)
	proc.Eventually(t, "refreshes to be under way", func() bool { return f.metric("refreshes_in_flight") > 0 })
	running := make(chan error, calls)
	for _, c := range clients[:calls] {
		go func() {
			_, err := c.call(context.WithoutCancel(t.Context()), "transfer", nil)
			running <- err
		}()
	}
	proc.Eventually(t, "the calls to run", func() bool { return f.b.ran("transfer") == calls })

	f.p.Signal(terminate)
	proc.Eventually(t, "readiness to fail", func() bool { return f.probe("/readyz") == http.StatusServiceUnavailable })
	if status := f.probe("/livez"); status != http.StatusOK {
		t.Errorf("liveness is %d", status)
	}
	for i := range 3 { // others don't know yet
		if _, err := connect(t, f.url()).call(t.Context(), "balance", map[string]int{"account": i}); err != nil {
			t.Errorf("a new client while the sidecar is still served: %v", err)
		}
	}
	for range calls {
		if err := <-running; err != nil {
			t.Errorf("a call that ran: %v", err)
		}
	}
	for _, c := range clients {
		<-c.ended
	}
	if code := f.p.Wait(); code != 0 {
		t.Errorf("the exit code is %d", code)
	}
	if strings.Contains(f.p.Output(), "calls cut off") {
		t.Error("calls were cut off")
	}

	f.a.intercept(nil)
	f.start()
	f.waitCurrent(conversations)
	for n := range conversations {
		if f.a.refreshed(id(n)) != 1 {
			t.Errorf("conversation %d was refreshed with %v", n, f.a.asked(id(n)))
		}
	}
}

// TestSecondSignal cuts the end short.
func TestSecondSignal(t *testing.T) {
	long(t)
	t.Parallel()
	b := startBackend(t, "-slow", "10m", "-grace", "1ms")
	s := startSidecar(t, b, config(t, "drainTimeout: 10m")...)
	c := connect(t, s.url())
	done := make(chan error, 1)
	go func() {
		_, err := c.call(context.WithoutCancel(t.Context()), "transfer", nil)
		done <- err
	}()
	proc.Eventually(t, "the call to run", func() bool { return b.ran("transfer") == 1 })
	s.p.Signal(terminate)
	proc.Eventually(t, "readiness to fail", func() bool { return s.probe("/readyz") == http.StatusServiceUnavailable })
	s.p.Signal(terminate)
	if code := s.p.Wait(); code != 1 {
		t.Errorf("the exit code is %d", code)
	}
	if err := <-done; err == nil {
		t.Error("the call was answered")
	}
}
