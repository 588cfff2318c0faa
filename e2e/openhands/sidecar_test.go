//go:build openhands && unix

package openhands

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// sidecar is a running sidecar.
type sidecar struct {
	t           *testing.T
	listen, ops string
	api         *admin.Client
}

// place is where a sidecar listens; it may be told to others before it runs.
type place struct{ listen, ops, ctrl, register string }

func reserve(t *testing.T) place {
	t.Helper()
	return place{proc.ReserveAddr(t), proc.ReserveAddr(t), proc.ReserveAddr(t), proc.ReserveAddr(t)}
}

// startSidecar starts a sidecar for backends, each below its name, and with these lines of configuration. It waits until
// all tools are settled.
func startSidecar(t *testing.T, at place, backends map[string]*backend, lines ...string) *sidecar {
	t.Helper()
	lines = append(lines,
		"listen: "+at.listen, "opsListen: "+at.ops, "adminListen: "+at.ctrl, "publicUrl: http://"+at.listen,
		"state: "+filepath.Join(t.TempDir(), "state.db"), "logLevel: debug",
		// On a busy machine a Python takes its time to start.
		"hold: 25s", "holdCall: 120s", "discoveryInterval: 2s", "servers:")
	for name, b := range backends {
		lines = append(lines, fmt.Sprintf("- {name: %s, path: /%s/mcp, upstream: http://%s/mcp}", name, name, b.addr))
	}
	s := &sidecar{t: t, listen: at.listen, ops: at.ops}
	proc.Start(t, sidecarPath, "run", "--config", write(t, "config.yaml", strings.Join(lines, "\n")+"\n"))
	proc.WaitListening(t, at.listen)
	var err error
	if s.api, err = admin.NewClient(at.ctrl, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.api.Close)
	for name := range backends {
		s.waitGeneration(name, 1)
	}
	return s
}

func write(t *testing.T, name, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// urlOf returns the URL of a server, for one conversation if an id is given.
func (s *sidecar) urlOf(name, id string) string {
	if id != "" {
		id = "/c/" + id
	}
	return "http://" + s.listen + id + "/" + name + "/mcp"
}

// waitGeneration waits until the tools of a server are settled as this generation.
func (s *sidecar) waitGeneration(name string, generation uint64) {
	s.t.Helper()
	proc.Within(s.t, patience, fmt.Sprintf("generation %d of %s", generation, name), func() bool {
		all, err := s.api.Servers(s.t.Context())
		if err != nil {
			return false
		}
		i := slices.IndexFunc(all, func(s admin.Server) bool { return s.Name == name })
		return i >= 0 && all[i].State == "settled" && all[i].Generation == generation
	})
}

// conversations returns what the sidecar knows of conversations.
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

// waitStates waits until exactly these conversations are registered, each with one of the states.
func (s *sidecar) waitStates(talkers []*talker, states ...string) {
	s.t.Helper()
	var all map[string]admin.Conversation
	defer func() {
		if s.t.Failed() {
			s.t.Logf("conversations: %+v", all)
		}
	}()
	proc.Within(s.t, patience, fmt.Sprintf("%d conversations to be %q", len(talkers), states), func() bool {
		all = s.conversations()
		for _, c := range talkers {
			found := false
			for _, state := range states {
				found = found || all[c.id].State == state
			}
			if !found {
				return false
			}
		}
		return len(all) == len(talkers)
	})
}

// metric returns the sum of all series of a metric whose line contains a text.
func (s *sidecar) metric(name, with string) float64 {
	s.t.Helper()
	sum := 0.0
	for series, v := range proc.Metrics(s.t, "http://"+s.ops+"/metrics") {
		if strings.HasPrefix(series, "mcp_sidecar_"+name+"{") && strings.Contains(series, with) {
			sum += v
		}
	}
	return sum
}
