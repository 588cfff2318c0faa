//go:build chaos && unix

package chaos

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// How the sidecar is configured: short times, so that all of it happens in a run.
const (
	hold        = 4 * time.Second
	holdCall    = 6 * time.Second
	sessionIdle = 3 * time.Second
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
	t        *testing.T
	seed     uint64
	time     *timeline
	ledger   *ledger
	sidecar  *sidecar
	backends []*backend
	tools    map[string]map[string]toolset // by revision and version
	actors   int                           // who have a source of randomness
	over     chan struct{}                 // closed when clients are to finish
}

// newWorld starts a backend for each mode, a wire to each, and the sidecar.
func newWorld(t *testing.T, seed uint64, modes ...string) *world {
	t.Helper()
	w := &world{t: t, seed: seed, time: newTimeline(), over: make(chan struct{})}
	w.ledger = &ledger{t: t, time: w.time}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("to repeat it: CHAOS_SEED=%d\nwhat was done, in seconds:\n%s", seed, w.time)
		}
	})
	for _, mode := range modes {
		w.actors++
		b := &backend{w: w, mode: mode, addr: proc.ReserveAddr(t), journal: filepath.Join(t.TempDir(), "journal"), rng: random(seed, w.actors)}
		w.actors++
		b.wire = newWire(t, b.addr, random(seed, w.actors))
		w.backends = append(w.backends, b)
	}
	w.sidecar = newSidecar(w)
	w.learnTools()
	for _, b := range w.backends {
		b.start("v1")
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

// backend is that of a server.
func (w *world) backend(server string) *backend {
	i := slices.IndexFunc(w.backends, func(b *backend) bool { return b.mode == server })
	return w.backends[i]
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
		if err != nil || len(all) != len(w.backends) {
			return false
		}
		for i, s := range all {
			if s.State != "settled" || len(s.Tools) != len(w.tools[legacy][w.backends[i].version]) {
				return false
			}
		}
		return true
	})
}

// quiet is a test to processes that are many: what they wrote isn't logged.
type quiet struct{ testing.TB }

// Failed implements testing.TB.
func (quiet) Failed() bool { return false }

// backend is one backend with its wire, and one process after the other.
type backend struct {
	w                   *world
	mode, addr, journal string
	wire                *wire
	rng                 *rand.Rand
	p                   *proc.Process
	version             string
	empty               atomic.Int64 // the last time, in nanoseconds, at which a process may have had no tools yet
}

// start starts a process and lets connections in once it listens.
func (b *backend) start(version string, args ...string) {
	b.version = version
	b.w.time.note("%s: start %s %s", b.mode, version, strings.Join(args, " "))
	b.p = proc.Start(quiet{b.w.t}, backendPath, slices.Concat([]string{
		"-listen", b.addr, "-journal", b.journal, "-mode", b.mode, "-version", version, "-slow", "60ms", "-grace", "1s",
	}, args)...)
	b.p.Addr()
	if slices.Contains(args, "-empty") {
		b.empty.Store(time.Now().Add(2*slowest + slack).UnixNano())
	}
	b.wire.open()
}

// wasEmpty reports whether a process may have been without tools at some time since from.
func (b *backend) wasEmpty(from time.Time) bool { return b.empty.Load() > from.UnixNano() }

// end ends the process.
func (b *backend) end(s syscall.Signal) {
	b.w.time.note("%s: %v", b.mode, s)
	if s != syscall.SIGKILL {
		b.wire.shut() // it listens no more before it ends
	}
	b.p.Signal(s)
	select {
	case <-b.p.Done():
	case <-time.After(10 * time.Second):
		b.w.t.Errorf("the backend %s doesn't end", b.mode)
		b.p.Kill()
	}
	b.wire.shut()
}

// offer makes the process offer the tools of another version.
func (b *backend) offer(version string) {
	b.w.time.note("%s: now offers %s", b.mode, version)
	resp, err := http.Post("http://"+b.addr+"/admin/tools?version="+version, "", http.NoBody)
	if err != nil {
		b.w.t.Errorf("changing the tools of a backend: %v", err)
		return
	}
	_ = resp.Body.Close()
	b.version = version
}

// other is the version that doesn't run.
func (b *backend) other() string {
	if b.version == "v1" {
		return "v2"
	}
	return "v1"
}

// entries is what the processes have written down.
func (b *backend) entries() []journal.Entry {
	b.w.t.Helper()
	all, err := journal.Read(b.journal)
	if err != nil {
		b.w.t.Fatal(err)
	}
	return all
}

// sessions is the number of sessions that the process knows.
func (b *backend) sessions() int {
	n, err := strconv.Atoi(strings.TrimSpace(get(b.w.t, "http://"+b.addr+"/admin/sessions")))
	if err != nil {
		b.w.t.Error(err)
	}
	return n
}

// sidecar is a place for a sidecar, and one process after the other.
type sidecar struct {
	w                 *world
	listen, ops, ctrl string
	args              []string
	api               *admin.Client
	p                 *proc.Process
}

func newSidecar(w *world) *sidecar {
	t := w.t
	t.Helper()
	s := &sidecar{w: w, listen: proc.ReserveAddr(t), ops: proc.ReserveAddr(t), ctrl: proc.ReserveAddr(t)}
	var config strings.Builder
	fmt.Fprintf(&config, "hold: %v\nholdCall: %v\nsessionIdle: %v\nkeepAlive: %v\ndrainDelay: 100ms\ndrainTimeout: %v\nservers:\n",
		hold, holdCall, sessionIdle, keepAlive, drainTimeout)
	for _, b := range w.backends {
		fmt.Fprintf(&config, "  - name: %s\n    path: /%s\n    upstream: http://%s/mcp\n", b.mode, b.mode, b.wire.addr)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	s.args = []string{
		"run", "--config", file, "--listen", s.listen, "--ops-listen", s.ops, "--admin-listen", s.ctrl,
		"--state", filepath.Join(dir, "state.db"), "--log-level", logLevel(),
	}
	var err error
	if s.api, err = admin.NewClient(s.ctrl, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.api.Close)
	return s
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
	sum, found := 0.0, false
	for line := range strings.Lines(get(s.w.t, "http://"+s.ops+"/metrics")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if bare, _, _ := strings.Cut(key, "{"); bare != name {
			continue
		}
		v, err := strconv.ParseFloat(value, 64)
		if err != nil {
			s.w.t.Errorf("%s: %v", line, err)
		}
		sum, found = sum+v, true
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
