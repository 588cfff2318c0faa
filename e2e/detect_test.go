//go:build unix

package e2e

import (
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// noSwap checks that nothing was taken for a swap, and no client got another session.
func (s *sidecar) noSwap(t *testing.T) {
	t.Helper()
	if got := s.server(); got.Swaps != 0 || got.Generation != 1 {
		t.Errorf("%d swaps were seen and it is generation %d", got.Swaps, got.Generation)
	}
	for _, name := range []string{"swaps_total", "session_reinitializations_total", "schema_changes_total"} {
		if n := s.metric(name); n != 0 {
			t.Errorf("%s is %v", name, n)
		}
	}
}

// TestFrozenProcess stops a process under a running call, and lets it go on after
// the sidecar has given it up.
func TestFrozenProcess(t *testing.T) {
	t.Parallel()
	b, a := startBackend(t), startAgents(t)
	s := startSidecar(t, b, "--probe-interval", "300ms", "--probe-timeout", "200ms", "--agent-server", a.url())
	a.converse(id(1), s.urlOf(id(1)), nil)
	s.waitCurrent(1)
	a.forget() // a conversation that was found before it listed its tools was refreshed
	c := connect(t, s.url())
	session := c.session
	call := make(chan error, 1)
	go func() {
		_, err := c.ask(t.Context(), "tools/call", map[string]any{"name": "slow", "arguments": map[string]any{"ms": 200}})
		call <- err
	}()
	proc.Eventually(t, "the call to run", func() bool { return b.ran("slow") == 1 })
	b.p.Signal(syscall.SIGSTOP)
	proc.Eventually(t, "the backend to be away", func() bool { return s.server().State == "away" })
	b.p.Signal(syscall.SIGCONT)
	s.waitSettled(1)
	if err := <-call; err != nil {
		t.Errorf("the call that was running: %v", err)
	}
	if _, err := c.ask(t.Context(), "tools/call", map[string]any{"name": "count", "arguments": map[string]any{}}); err != nil || c.session != session {
		t.Errorf("a call after that, in session %q of %q: %v", c.session, session, err)
	}
	s.noSwap(t)
	if asked := a.asked(id(1)); len(asked) > 0 {
		t.Errorf("%d refreshes were asked for", len(asked))
	}
}

// TestWorkersBehindOnePort has several processes take turns, as behind a port that
// they share, one of which ends.
func TestWorkersBehindOnePort(t *testing.T) {
	t.Parallel()
	workers := make([]*backend, 4)
	var addrs []string
	for i := range workers {
		workers[i] = startBackend(t, "-mode", "stateless", "-identity-header", "X-Instance")
		addrs = append(addrs, workers[i].addr)
	}
	port := takeTurns(t, addrs)
	shared := &backend{t: t, addr: port.Addr().String()}
	s := startSidecar(t, shared, "--probe-interval", "100ms", "--probe-timeout", "90ms", "--list-interval", "300ms")
	c := connect(t, s.url())
	probes := s.metric(`backend_probes_total{probe="ping",server="default"}`)
	calls := func(n int) {
		t.Helper()
		for range n {
			if _, err := c.ask(t.Context(), "tools/call", map[string]any{"name": "balance", "arguments": map[string]any{}}); err != nil {
				t.Error(err)
			}
		}
		proc.Eventually(t, "more probes", func() bool {
			now := s.metric(`backend_probes_total{probe="ping",server="default"}`)
			more := now >= probes+10
			if more {
				probes = now
			}
			return more
		})
	}
	calls(50)
	workers[2].kill()
	calls(50)
	s.noSwap(t)
}

// takeTurns listens on an address behind which others answer, one connection each.
// One that can't be reached is passed over.
func takeTurns(t *testing.T, addrs []string) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var turn atomic.Int64
	serve := func(in net.Conn) {
		defer in.Close()
		for range addrs {
			out, err := net.Dial("tcp", addrs[int(turn.Add(1))%len(addrs)])
			if err != nil {
				continue
			}
			all.Go(func() {
				_, _ = io.Copy(out, in)
				_ = out.Close()
			})
			_, _ = io.Copy(in, out)
			return
		}
	}
	all.Go(func() {
		for {
			in, err := l.Accept()
			if err != nil {
				return
			}
			all.Go(func() { serve(in) })
		}
	})
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestSilentChange: tools that change without another process and without notice
// are found, and said to be so.
func TestSilentChange(t *testing.T) {
	t.Parallel()
	b := startBackend(t, "-list-changed=false")
	s := startSidecar(t, b, "--list-interval", "300ms")
	c := connect(t, s.url())
	b.admin("tools?version=v2")
	s.waitSettled(2)
	if n := s.metric(`schema_changes_total{cause="silent",server="default"}`); n != 1 {
		t.Errorf("%v silent changes are counted", n)
	}
	change := s.server().LastChange
	if change == nil || !change.Silent || change.Cause != "silent" || strings.Join(change.Added, " ") != "multiply" {
		t.Errorf("last change %+v", change)
	}
	if n := s.metric("swaps_total"); n != 0 {
		t.Errorf("%v swaps were seen", n)
	}
	if _, ok := c.tools()["multiply"]; !ok {
		t.Error("a client lists the old tools")
	}
}
