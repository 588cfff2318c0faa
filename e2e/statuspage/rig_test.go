//go:build unix

package statuspage

import (
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// rig is a sidecar between a backend and an agent server.
type rig struct {
	t       *testing.T
	backend string // address
	process *proc.Process
	agents  *agentserver.Server
	refuse  atomic.Bool // the agent server fails refreshes

	listen, admin string // addresses
	args          []string
	sidecar       *proc.Process
	api           *admin.Client
}

func newRig(t *testing.T, args ...string) *rig {
	t.Helper()
	r := &rig{t: t, backend: proc.ReserveAddr(t), listen: proc.ReserveAddr(t), admin: proc.ReserveAddr(t)}
	var err error
	if r.agents, err = agentserver.New(agentserver.DefaultConfig(), agentserver.Deps{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.agents.Close() })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		if r.refuse.Load() && strings.HasSuffix(q.URL.Path, "/refresh_mcp_tools") && q.Method == http.MethodPost {
			http.Error(w, `{"detail":"the sandbox is on fire"}`, http.StatusInternalServerError)
			return
		}
		r.agents.ServeHTTP(w, q)
	})}
	go func() { _ = srv.Serve(l) }()
	t.Cleanup(func() { _ = srv.Close() })

	r.args = append([]string{
		"run", "--upstream", "http://" + r.backend + "/mcp", "--listen", r.listen, "--ops-listen", "127.0.0.1:0", "--admin-listen", r.admin,
		"--state", filepath.Join(t.TempDir(), "state.db"), "--agent-server", "http://" + l.Addr().String(),
	}, args...)
	r.start()
	if r.api, err = admin.NewClient(r.admin, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.api.Close)
	return r
}

func (r *rig) start() {
	r.t.Helper()
	r.sidecar = proc.Start(r.t, filepath.Join(bin, "mcp-sidecar"), r.args...)
	proc.WaitListening(r.t, r.listen)
}

// deploy puts another process in the backend's place.
func (r *rig) deploy(args ...string) {
	r.t.Helper()
	r.away()
	r.process = proc.Start(r.t, filepath.Join(bin, "testbackend"), append([]string{"-listen", r.backend}, args...)...)
	r.process.Addr()
}

// away ends the backend.
func (r *rig) away() {
	if r.process != nil {
		r.process.Kill()
	}
}

// converse starts conversations whose tools come through the sidecar.
func (r *rig) converse(n int) {
	r.t.Helper()
	for i := range n {
		id := fmt.Sprintf("c0ffee00-0000-4000-8000-%012d", i+1)
		c, _, err := r.agents.Create(r.t.Context(), agentserver.CreateRequest{
			ID: agentserver.ID(id), Servers: []agentserver.MCPServer{{Name: "backend", URL: "http://" + r.listen + "/c/" + id + "/mcp"}},
		})
		if err != nil {
			r.t.Fatal(err)
		}
		if err := c.Start(r.t.Context()); err != nil {
			r.t.Fatal(err)
		}
	}
}
