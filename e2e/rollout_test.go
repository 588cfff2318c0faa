//go:build unix

package e2e

import (
	"context"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestReplacedTogether replaces the sidecar and the backend as a rollout of their
// pod does. The new sidecar has the key of the old one, and nothing else.
func TestReplacedTogether(t *testing.T) {
	long(t)
	t.Parallel()
	key := sessionKey(t)
	a := startAgents(t)
	flags := []string{"--agent-server", a.url(), "--session-key-file", key}

	oldBackend := startBackend(t)
	old := startSidecar(t, oldBackend, flags...)
	service := startService(t, old.listen)
	talk := a.converse(id(1), "http://"+service.addr+"/c/"+id(1)+"/mcp", nil)
	old.waitCurrent(1)
	w := startCrowd(t, "http://"+service.addr+"/mcp", 10)
	w.reopen.Store(true)
	w.waitCalls()
	a.forget()

	newBackend := newBackend(t, "-closed", "1s") // it starts after its sidecar
	newBackend.launch("v2")
	next := newSidecar(t, append([]string{"--upstream", newBackend.url()}, flags...)...)
	next.start()
	proc.Eventually(t, "the new sidecar to be ready", func() bool { return next.probe("/readyz") == http.StatusOK })
	old.p.Signal(terminate)
	service.to(next.listen)
	if code := old.p.Wait(); code != 0 {
		t.Errorf("the old sidecar ended with exit code %d", code)
	}
	oldBackend.terminate()

	next.waitSettled(1)
	tools := newBackend.tools()
	w.waitTools(tools)
	w.waitCalls()
	w.stop()
	w.check()
	if _, err := talk.CallTool(t.Context(), "balance", nil); err != nil {
		t.Errorf("the conversation's next call: %v", err)
	}
	next.waitCurrent(1)
	proc.Eventually(t, "the conversation to offer the new tools", func() bool { return offers(talk, tools) })
}

// service passes connections on to one of several addresses, as a Kubernetes
// Service does: connections that are open stay where they are.
type service struct {
	addr   string
	target atomic.Pointer[string]
}

func startService(t *testing.T, target string) *service {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &service{addr: listener.Addr().String()}
	s.to(target)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var wg sync.WaitGroup
	t.Cleanup(func() { cancel(); listener.Close(); wg.Wait() })
	wg.Go(func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			out, err := net.Dial("tcp", *s.target.Load())
			if err != nil {
				in.Close()
				continue
			}
			stop := context.AfterFunc(ctx, func() { in.Close(); out.Close() })
			wg.Go(func() {
				defer stop()
				var both sync.WaitGroup
				both.Go(func() { pass(out, in) })
				both.Go(func() { pass(in, out) })
				both.Wait()
				in.Close()
				out.Close()
			})
		}
	})
	return s
}

// to makes new connections go to another address.
func (s *service) to(addr string) { s.target.Store(&addr) }

// pass copies until the source ends, and says so to the destination.
func pass(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if tcp, ok := to.(*net.TCPConn); ok && err == nil {
		_ = tcp.CloseWrite()
		return
	}
	to.Close()
}
