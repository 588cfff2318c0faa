//go:build chaos && unix

package chaos

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// How the sidecar is configured: short times, so that all of it happens in a run.
const (
	hold         = 4 * time.Second
	holdCall     = 6 * time.Second
	longHold     = 12 * time.Second // long enough for signs of life on what is held
	longHoldCall = 14 * time.Second
	sessionIdle  = 3 * time.Second
	// drainTimeout is how long calls may go on when the sidecar is to stop.
	drainTimeout = 8 * time.Second
	// soon is how long a client may take for a call and a listing when all is well.
	soon = 15 * time.Second
	// slowest is how long each phase of a slow start takes at most, and slack what a busy machine may add to all.
	slowest = 1500 * time.Millisecond
	slack   = 3 * time.Second
)

// world is all that takes part in a run.
type world struct {
	t       *testing.T
	seed    uint64
	time    *timeline
	ledger  *ledger
	sidecar *sidecar
	servers []server
	tools   map[string]map[string]toolset // by revision and version
	actors  int                           // who have a source of randomness
	over    chan struct{}                 // closed when clients are to finish
}

// newWorld starts a server of each name, and the sidecar.
func newWorld(t *testing.T, seed uint64, names ...string) *world {
	t.Helper()
	w := &world{t: t, seed: seed, time: newTimeline(), over: make(chan struct{})}
	w.ledger = &ledger{t: t, time: w.time}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat it: CHAOS_SEED=%d\nwhat was done, in seconds:\n%s", seed, w.time)
		}
	})
	for _, name := range names {
		switch name {
		case "stdio", "shared":
			w.servers = append(w.servers, w.newCommand(name))
		default:
			w.servers = append(w.servers, w.newBackend(name))
		}
	}
	w.sidecar = newSidecar(w)
	w.learnTools()
	for _, s := range w.servers {
		s.start("v1")
	}
	w.sidecar.start()
	w.waitSettled()
	return w
}

// ending waits, and reports whether clients are to finish.
func (w *world) ending(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-w.over:
		return true
	case <-timer.C:
		return false
	}
}

// server is the one with this name.
func (w *world) server(name string) server {
	i := slices.IndexFunc(w.servers, func(s server) bool { return s.at().name == name })
	return w.servers[i]
}

// excuses reports whether what began at that time may fail like this, because the sidecar was away.
func (w *world) excuses(err error, from time.Time) bool {
	broke, ok := errors.AsType[connectionError](err)
	return ok && (w.time.excuses(from) || broke.refused && w.time.stopped(from)) // what never came to it, it needn't finish
}

// learnTools asks backends of both versions what they offer to clients of both revisions.
func (w *world) learnTools() {
	w.t.Helper()
	w.tools = map[string]map[string]toolset{legacy: {}, modern: {}}
	for _, version := range []string{"v1", "v2"} {
		p := proc.Start(quiet{w.t}, backendPath, "-mode", "stateless", "-version", version)
		c := caller{addr: p.Addr(), path: "/mcp", patience: patience}
		for _, revision := range []string{legacy, modern} {
			c.modern = revision == modern
			m, _, err := c.ask("1", "tools/list", nil)
			if err != nil || m.Error != nil {
				w.t.Fatalf("asking a backend directly: %+v %v", m, err)
			}
			if w.tools[revision][version], err = toolsOf(m.Result); err != nil || len(w.tools[revision][version]) < 5 {
				w.t.Fatalf("asking a backend directly: %s %v", m.Result, err)
			}
		}
		c.hangUp()
		p.Kill()
	}
}

// waitSettled waits until the tools of every backend are settled as the version that runs.
func (w *world) waitSettled() {
	w.t.Helper()
	proc.Eventually(w.t, "the tools of every backend to settle", func() bool {
		all, err := w.sidecar.api.Servers(w.t.Context())
		if err != nil || len(all) != len(w.servers) {
			return false
		}
		for i, s := range all {
			want := w.tools[legacy][w.servers[i].at().version]
			if s.State != "settled" || len(s.Tools) != len(want) {
				return false
			}
			for _, tool := range s.Tools {
				if _, ok := want[tool.Name]; !ok {
					return false
				}
			}
		}
		return true
	})
}

// quiet is a test to processes that are many: what they wrote isn't logged.
type quiet struct{ testing.TB }

// Failed implements testing.TB.
func (quiet) Failed() bool { return false }

// sidecar is a place for a sidecar, and one process after the other.
type sidecar struct {
	w                 *world
	listen, ops, ctrl string
	file              string // of the configuration
	changes           int    // of it
	args              []string
	api               *admin.Client
	p                 *proc.Process
}

func newSidecar(w *world) *sidecar {
	t := w.t
	t.Helper()
	s := &sidecar{w: w, listen: proc.ReserveAddr(t), ops: proc.ReserveAddr(t), ctrl: proc.ReserveAddr(t)}
	dir := t.TempDir()
	s.file = filepath.Join(dir, "config.yaml")
	s.configure()
	s.args = []string{
		"run", "--config", s.file, "--listen", s.listen, "--ops-listen", s.ops, "--admin-listen", s.ctrl,
		"--state", filepath.Join(dir, "state.db"), "--log-level", logLevel(),
	}
	var err error
	if s.api, err = admin.NewClient(s.ctrl, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.api.Close)
	return s
}

// configure writes the configuration, each time another one.
func (s *sidecar) configure() {
	var config strings.Builder
	fmt.Fprintf(&config, "hold: %v\nholdCall: %v\nsessionIdle: %v\nkeepAlive: %v\ndrainDelay: 100ms\ndrainTimeout: %v\nservers:\n",
		hold, holdCall, sessionIdle, keepAlive, drainTimeout)
	for _, to := range s.w.servers {
		name := to.at().name
		fmt.Fprintf(&config, "  - name: %s\n    path: /%s\n    %s", name, name, to.config(s.changes))
	}
	s.changes++
	next := s.file + ".next"
	if err := os.WriteFile(next, []byte(config.String()), 0o600); err != nil {
		s.w.t.Error(err)
	}
	if err := os.Rename(next, s.file); err != nil {
		s.w.t.Error(err)
	}
}

// start starts a process and waits until it serves.
func (s *sidecar) start() {
	s.w.time.note("sidecar: start")
	p := proc.StartWith(s.w.t, exec.Command(sidecarPath, s.args...))
	s.p = p
	s.w.t.Cleanup(func() {
		if out := p.Output(); strings.Contains(out, "DATA RACE") || strings.Contains(out, "goroutine ") {
			s.w.t.Errorf("the sidecar has a data race or panicked:\n%s", out)
		}
	})
	proc.WaitListening(s.w.t, s.listen)
}

// end ends the process.
func (s *sidecar) end(signal syscall.Signal) {
	s.w.time.note("sidecar: %v", signal)
	s.w.time.down(signal == syscall.SIGTERM)
	s.p.Signal(signal)
	select {
	case <-s.p.Done():
	case <-time.After(30 * time.Second):
		s.w.t.Error("the sidecar doesn't end")
		s.p.Kill()
	}
}

// again starts it after end.
func (s *sidecar) again() {
	s.start()
	s.w.time.up()
}

// metric is the sum of a metric over all its labels. Its name is whole.
func (s *sidecar) metric(name string) float64 {
	s.w.t.Helper()
	sum, found := 0.0, false
	for series, v := range proc.Metrics(s.w.t, "http://"+s.ops+"/metrics") {
		if bare, _, _ := strings.Cut(series, "{"); bare == name {
			sum, found = sum+v, true
		}
	}
	if !found {
		s.w.t.Errorf("there is no metric %s", name)
	}
	return sum
}

// taken is what a process has of the machine.
type taken struct{ memory, goroutines, descriptors float64 }

func (s *sidecar) taken() taken {
	return taken{s.metric("process_resident_memory_bytes"), s.metric("go_goroutines"), s.metric("process_open_fds")}
}

// within reports whether it is about as little as before.
func (n taken) within(before taken, memory float64) bool {
	return n.memory <= before.memory+memory && n.goroutines <= before.goroutines+25 && n.descriptors <= before.descriptors+15
}

// get fetches a page on a connection of its own.
func get(t *testing.T, url string) string {
	t.Helper()
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: patience}
	resp, err := c.Get(url)
	if err != nil {
		t.Error(err)
		return ""
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return string(body)
}
