//go:build unix && alerts

package alerts

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// pod is a backend with its sidecar.
type pod struct {
	t                  *testing.T
	name               string
	listen, ops, admin string // addresses of the sidecar
	upstream           string // address of the backend
	sidecar, backend   *proc.Process
	api                *admin.Client
}

// newPod reserves the addresses of a pod in which nothing runs yet.
func newPod(t *testing.T, name string) *pod {
	t.Helper()
	p := &pod{
		t: t, name: name, upstream: proc.ReserveAddr(t),
		listen: proc.ReserveAddr(t), ops: proc.ReserveAddr(t), admin: proc.ReserveAddr(t),
	}
	var err error
	if p.api, err = admin.NewClient(p.admin, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.api.Close)
	return p
}

// startSidecar starts the sidecar. As in Kubernetes, that is before the backend starts.
func (p *pod) startSidecar(agents, key string) {
	p.t.Helper()
	p.sidecar = proc.Start(p.t, sidecarPath, "run", "--upstream", "http://"+p.upstream+"/mcp", "--agent-server", agents, "--session-key-file", key,
		"--listen", p.listen, "--ops-listen", p.ops, "--admin-listen", p.admin, "--state", filepath.Join(p.t.TempDir(), "state.db"))
	proc.WaitListening(p.t, p.listen)
}

// startBackend starts a version of the backend, and waits until the sidecar knows its tools.
func (p *pod) startBackend(version string) {
	p.t.Helper()
	p.backend = proc.Start(p.t, backendPath, "-listen", p.upstream, "-version", version)
	p.backend.Addr()
	proc.Eventually(p.t, "the tools of "+p.name+" to settle", func() bool {
		servers, err := p.api.Servers(p.t.Context())
		return err == nil && len(servers) == 1 && servers[0].State == "settled"
	})
}

// call sends a request to the sidecar, whatever comes of it.
func (p *pod) call() {
	p.t.Helper()
	const ping = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	request, err := http.NewRequestWithContext(p.t.Context(), http.MethodPost, "http://"+p.listen+"/mcp", strings.NewReader(ping))
	if err != nil {
		p.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Accept", "application/json, text/event-stream")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		p.t.Error(err)
		return
	}
	_, _ = io.Copy(io.Discard, answer.Body)
	_ = answer.Body.Close()
}

// agents is an agent server that can refuse to refresh.
type agents struct {
	*agentserver.Server

	url     string
	refuses atomic.Bool
}

func startAgents(t *testing.T) *agents {
	t.Helper()
	server, err := agentserver.New(agentserver.DefaultConfig(), agentserver.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	a := &agents{Server: server}
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.refuses.Load() && r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/refresh_mcp_tools") {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusInternalServerError)
			fmt.Fprintln(w, `{"detail":"Internal Server Error"}`)
			return
		}
		a.ServeHTTP(w, r)
	}))
	a.url = listener.URL
	t.Cleanup(func() { _ = server.Close() })
	t.Cleanup(listener.Close)
	return a
}

// converse creates a conversation with an MCP server.
func (a *agents) converse(t *testing.T, id, url string) *agentserver.Conversation {
	t.Helper()
	c, _, err := a.Create(t.Context(), agentserver.CreateRequest{
		ID: agentserver.ID(id), Servers: []agentserver.MCPServer{{Name: "backend", URL: url}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return c
}

// service forwards connections to one pod, as a Service does to those that are ready.
type service struct {
	addr string
	to   atomic.Pointer[pod]
}

func startService(t *testing.T, first *pod) *service {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	s := &service{addr: listener.Addr().String()}
	s.to.Store(first)
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			go s.forward(in)
		}
	}()
	return s
}

func (s *service) forward(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", s.to.Load().listen)
	if err != nil {
		return
	}
	defer out.Close()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(out, in)
		_ = out.Close()
	}()
	_, _ = io.Copy(in, out)
	_ = in.Close()
	<-done
}
