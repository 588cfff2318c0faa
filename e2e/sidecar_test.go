//go:build unix

package e2e

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// sidecar is one place for a sidecar: addresses, a state file and a
// configuration, with one process after the other.
type sidecar struct {
	t                 *testing.T
	listen, ops, ctrl string // addresses
	state             string
	args              []string
	p                 *proc.Process
	api               *admin.Client
}

// startSidecar starts a sidecar for a backend and waits until the tools of the
// backend are settled.
func startSidecar(t *testing.T, b *backend, args ...string) *sidecar {
	t.Helper()
	s := newSidecar(t, append([]string{"--upstream", b.url()}, args...)...)
	s.start()
	s.waitSettled(1)
	return s
}

// newSidecar makes a place for a sidecar that doesn't run yet.
func newSidecar(t *testing.T, args ...string) *sidecar {
	t.Helper()
	s := &sidecar{
		t: t, listen: proc.ReserveAddr(t), ops: proc.ReserveAddr(t), ctrl: proc.ReserveAddr(t),
		state: filepath.Join(t.TempDir(), "state.db"), args: args,
	}
	var err error
	if s.api, err = admin.NewClient(s.ctrl, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.api.Close)
	return s
}

// config returns flags for a configuration file with these lines.
func config(t *testing.T, lines ...string) []string {
	t.Helper()
	return []string{"--config", writeFile(t, "config.yaml", strings.Join(lines, "\n")+"\n")}
}

func writeFile(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	rewrite(t, path, content)
	return path
}

func rewrite(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// flags returns all flags of a process.
func (s *sidecar) flags() []string {
	return slices.Concat([]string{
		"run", "--listen", s.listen, "--ops-listen", s.ops, "--admin-listen", s.ctrl, "--state", s.state, "--log-level", "debug",
	}, s.args)
}

// start starts a process and waits until it serves.
func (s *sidecar) start() {
	s.t.Helper()
	p := proc.Start(s.t, sidecarPath, s.flags()...)
	s.p = p
	s.t.Cleanup(func() {
		if out := p.Output(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "goroutine ") {
			s.t.Errorf("the sidecar has a data race or panicked:\n%s", out)
		}
	})
	proc.WaitListening(s.t, s.listen)
}

// url returns the sidecar's MCP endpoint.
func (s *sidecar) url() string { return "http://" + s.listen + "/mcp" }

// urlOf returns the endpoint for the clients of a conversation.
func (s *sidecar) urlOf(id string) string { return "http://" + s.listen + "/c/" + id + "/mcp" }

// server returns what the admin API says of the only server.
func (s *sidecar) server() admin.Server {
	s.t.Helper()
	all, err := s.api.Servers(s.t.Context())
	if err != nil || len(all) != 1 {
		s.t.Fatalf("servers: %+v, %v", all, err)
	}
	return all[0]
}

// waitSettled waits until the backend's tools are settled as this generation.
func (s *sidecar) waitSettled(generation uint64) {
	s.t.Helper()
	proc.Eventually(s.t, "generation "+strconv.FormatUint(generation, 10)+" to settle", func() bool {
		got := s.server()
		return got.State == "settled" && got.Generation == generation
	})
}

// waitSwap waits until so many swaps were seen, and the tools have settled since.
func (s *sidecar) waitSwap(swaps, generation uint64) {
	s.t.Helper()
	proc.Eventually(s.t, "swap "+strconv.FormatUint(swaps, 10)+" to settle", func() bool {
		got := s.server()
		return got.State == "settled" && got.Swaps >= swaps
	})
	if got := s.server(); got.Swaps != swaps || got.Generation != generation {
		s.t.Errorf("%d swaps were seen and it is generation %d, want %d and %d", got.Swaps, got.Generation, swaps, generation)
	}
}

// register registers a conversation.
func (s *sidecar) register(id string) {
	s.t.Helper()
	if _, err := s.api.Register(s.t.Context(), id, admin.Registration{}); err != nil {
		s.t.Fatal(err)
	}
}

// conversations returns all registered conversations by id.
func (s *sidecar) conversations() map[string]admin.Conversation {
	s.t.Helper()
	page, err := s.api.Conversations(s.t.Context(), conversation.Query{Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	all := map[string]admin.Conversation{}
	for _, c := range page.Conversations {
		all[c.ID] = c
	}
	return all
}

// waitCurrent waits until n conversations are registered and all are current.
func (s *sidecar) waitCurrent(n int) {
	s.t.Helper()
	proc.Eventually(s.t, strconv.Itoa(n)+" current conversations", func() bool {
		all := s.conversations()
		for _, c := range all {
			if c.State != "current" {
				return false
			}
		}
		return len(all) == n
	})
}

// waitState waits until a conversation has a state.
func (s *sidecar) waitState(id, state string) admin.Conversation {
	s.t.Helper()
	var c admin.Conversation
	proc.Eventually(s.t, "conversation "+id+" to be "+state, func() bool {
		c = s.conversations()[id]
		return c.State == state
	})
	return c
}

// metric returns the value of a metric by its name and labels as they are
// written, such as swaps_total{cause="restart",server="default"}. Without labels
// it is the sum over all of them.
func (s *sidecar) metric(name string) float64 {
	s.t.Helper()
	sum, found := 0.0, false
	for series, v := range proc.Metrics(s.t, "http://"+s.ops+"/metrics") {
		if bare, _, _ := strings.Cut(series, "{"); series == "mcp_sidecar_"+name || bare == "mcp_sidecar_"+name {
			sum, found = sum+v, true
		}
	}
	if !found {
		s.t.Errorf("there is no metric %s", name)
	}
	return sum
}

// probe returns the status of an ops endpoint, 0 when it can't be reached.
func (s *sidecar) probe(path string) int {
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Get("http://" + s.ops + path)
	if err != nil {
		return 0
	}
	resp.Body.Close()
	return resp.StatusCode
}

// fetch sends one request on a connection of its own.
func fetch(t *testing.T, method, url string, header http.Header) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	if header != nil {
		r.Header = header
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(body)
}
