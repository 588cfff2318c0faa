//go:build unix && replicas

package replicas

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// fleet is a Redis server, pods that share it, and a load balancer in front of them.
type fleet struct {
	t     *testing.T
	dir   string
	redis string // address
	front string // address
	pods  []*pod

	redisProcess *proc.Process
	began        time.Time
}

// step notes in the test's log what has happened, and when.
func (f *fleet) step(what string) {
	f.t.Helper()
	f.t.Logf("%6.1f s: %s", time.Since(f.began).Seconds(), what)
}

// startFleet starts everything, and waits until all pods have the tools of v1. args are for every sidecar.
func startFleet(t *testing.T, pods int, args ...string) *fleet {
	t.Helper()
	f := &fleet{t: t, dir: t.TempDir(), redis: proc.ReserveAddr(t), front: proc.ReserveAddr(t), began: time.Now()}
	f.startRedis()
	key := filepath.Join(f.dir, "session.key")
	secret := make([]byte, 32)
	_, _ = rand.Read(secret)
	if err := os.WriteFile(key, []byte(hex.EncodeToString(secret)), 0o600); err != nil {
		t.Fatal(err)
	}
	args = append([]string{"--redis", "redis://" + f.redis, "--session-key-file", key, "--public-url", "http://" + f.front}, args...)
	for i := range pods {
		p := newPod(t, fmt.Sprintf("pod%d", i), args)
		f.pods = append(f.pods, p)
		p.startBackend("v1")
		p.startSidecar()
	}
	f.startFront()
	for _, p := range f.pods {
		p.waitSettled()
	}
	return f
}

// startRedis starts the server on what an earlier process has written.
func (f *fleet) startRedis() {
	f.t.Helper()
	host, port, _ := strings.Cut(f.redis, ":")
	f.redisProcess = proc.StartWith(f.t, exec.Command(proc.Need(f.t, "redis-server"),
		"--bind", host, "--port", port, "--dir", f.dir, "--save", "", "--appendonly", "yes"))
	proc.WaitListening(f.t, f.redis)
}

// startFront starts the load balancer. It knows nothing of sessions, leaves out pods that aren't ready, and sends what a dead pod hasn't
// answered to another one, as the ones of clusters do.
func (f *fleet) startFront() {
	f.t.Helper()
	var servers strings.Builder
	for _, p := range f.pods {
		_, ops, _ := strings.Cut(p.ops, ":")
		fmt.Fprintf(&servers, "  server %s %s check port %s inter 500 fall 2 rise 1\n", p.name, p.listen, ops)
	}
	config := filepath.Join(f.dir, "haproxy.cfg")
	if err := os.WriteFile(config, fmt.Appendf(nil, `
global
  maxconn 8000
defaults
  mode http
  timeout connect 10s
  timeout check 10s
  timeout client 10m
  timeout server 10m
  retries 10
  option redispatch 1
  retry-on conn-failure empty-response
frontend agents
  bind %s
  default_backend pods
backend pods
  balance roundrobin
  option httpchk GET /readyz
%s`, f.front, &servers), 0o600); err != nil {
		f.t.Fatal(err)
	}
	proc.Start(f.t, proc.Need(f.t, "haproxy"), "-f", config)
	proc.WaitListening(f.t, f.front)
}

// urlOf is the MCP server as the clients of a conversation know it.
func (f *fleet) urlOf(id string) string { return "http://" + f.front + "/c/" + id + "/mcp" }

// waitCurrent waits until all pods know n conversations and that all of them have a generation.
func (f *fleet) waitCurrent(n int, generation uint64) {
	f.t.Helper()
	for _, p := range f.pods {
		what := ""
		ok := func() bool {
			all, err := p.conversations()
			if err != nil {
				what = err.Error()
				return false
			}
			bad := 0
			for _, c := range all {
				if c.State != "current" || len(c.Servers) != 1 || c.Servers[0].Applied != generation {
					bad++
					what = fmt.Sprintf("%s is %s, %+v, last error %+v", c.ID, c.State, c.Servers, c.LastError)
				}
			}
			what = fmt.Sprintf("%d of %d are current; %s", len(all)-bad, len(all), what)
			return len(all) == n && bad == 0
		}
		if !within(f.t, 4*proc.Patience, ok) {
			f.t.Fatalf("%s knows not only current conversations: %s", p.name, what)
		}
	}
}

func within(t *testing.T, patience time.Duration, ok func() bool) bool {
	t.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			return false
		}
	}
	return true
}

// pod is a backend with its sidecar.
type pod struct {
	t                  *testing.T
	name               string
	args               []string
	listen, ops, admin string // addresses of the sidecar
	upstream           string // address of the backend
	sidecar, backend   *proc.Process
	api                *admin.Client
}

func newPod(t *testing.T, name string, args []string) *pod {
	t.Helper()
	p := &pod{
		t: t, name: name, args: args, upstream: proc.ReserveAddr(t),
		listen: proc.ReserveAddr(t), ops: proc.ReserveAddr(t), admin: proc.ReserveAddr(t),
	}
	var err error
	if p.api, err = admin.NewClient(p.admin, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.api.Close)
	return p
}

func (p *pod) startSidecar() {
	p.t.Helper()
	p.sidecar = proc.Start(p.t, sidecarPath, slices.Concat([]string{
		"run", "--upstream", "http://" + p.upstream + "/mcp", "--listen", p.listen, "--ops-listen", p.ops, "--admin-listen", p.admin,
	}, p.args)...)
	proc.WaitListening(p.t, p.listen)
}

func (p *pod) startBackend(version string) {
	p.t.Helper()
	p.backend = proc.Start(p.t, backendPath, "-listen", p.upstream, "-version", version)
	p.backend.Addr()
}

// replace replaces the backend as a rollout does, and waits until the sidecar has seen it.
func (p *pod) replace(version string) {
	p.t.Helper()
	before := p.server().Swaps
	p.backend.Terminate()
	p.startBackend(version)
	proc.Within(p.t, 2*proc.Patience, "the swap of "+p.name+" to settle", func() bool {
		s := p.server()
		return s.Swaps > before && s.State == "settled"
	})
}

func (p *pod) server() admin.Server {
	p.t.Helper()
	all, err := p.api.Servers(p.t.Context())
	if err != nil || len(all) != 1 {
		return admin.Server{}
	}
	return all[0]
}

func (p *pod) waitSettled() {
	p.t.Helper()
	proc.Within(p.t, 2*proc.Patience, "the tools of "+p.name+" to settle", func() bool {
		s := p.server()
		return s.State == "settled" && s.Generation > 0 && p.ready()
	})
}

func (p *pod) ready() bool {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + p.ops + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (p *pod) conversations() ([]admin.Conversation, error) {
	page, err := p.api.Conversations(p.t.Context(), conversation.Query{Limit: 1000})
	return page.Conversations, err
}
