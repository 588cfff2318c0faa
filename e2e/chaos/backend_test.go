//go:build chaos && unix

package chaos

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// server is what the sidecar stands in front of: a backend or a command.
type server interface {
	at() *place
	config(n int) string                  // of the sidecar, when it was changed n times
	start(version string, args ...string) // the first process
	wasEmpty(from time.Time) bool         // whether it may have been without tools since then
	wasUnavailable(from time.Time) bool   // whether it may have refused everything since then
	torment(until time.Time)              // lets it fail
	change()                              // to the other version
	waitLeft()                            // until nothing is left of the clients, who are gone
}

// place is what all servers have.
type place struct {
	w             *world
	name, journal string
	rng           *rand.Rand
	version       string // that new processes have

	hold, holdCall time.Duration // how long requests wait for it
}

func (w *world) newPlace(name string) place {
	w.actors++
	p := place{
		w: w, name: name, journal: filepath.Join(w.t.TempDir(), "journal"), rng: random(w.seed, w.actors),
		hold: hold, holdCall: holdCall,
	}
	if name == "default" || name == "sse" {
		p.hold, p.holdCall = longHold, longHoldCall
	}
	return p
}

func (p *place) at() *place { return p }

// other is the version that doesn't run.
func (p *place) other() string {
	if p.version == "v1" {
		return "v2"
	}
	return "v1"
}

// entries is what the processes have written down.
func (p *place) entries() []journal.Entry {
	p.w.t.Helper()
	all, err := journal.Read(p.journal)
	if err != nil {
		p.w.t.Fatal(err)
	}
	return all
}

// newBackend makes a backend, whose mode is its name too, and the wire to it.
func (w *world) newBackend(mode string) *backend {
	b := &backend{place: w.newPlace(mode), mode: mode, addr: proc.ReserveAddr(w.t)}
	w.actors++
	b.wire = newWire(w.t, b.addr, random(w.seed, w.actors))
	return b
}

func (b *backend) config(n int) string {
	// With other probes it is looked at anew, though it is the same.
	text := fmt.Sprintf("probe: {interval: %ds}\n    hold: %v\n    holdCall: %v\n    upstream: http://%s", 2+n%2, b.hold, b.holdCall, b.wire.addr)
	if b.mode == "sse" {
		return text + "/sse\n    transport: sse\n"
	}
	return text + "/mcp\n"
}

// backend is one backend with its wire, and one process after the other.
type backend struct {
	place

	mode, addr string
	wire       *wire
	p          *proc.Process
	empty      atomic.Int64 // the last time, in nanoseconds, at which a process may have had no tools yet
	// unavailable is the last time at which one may have answered nothing but a status.
	unavailable atomic.Int64
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
	if slices.Contains(args, "-unavailable") {
		b.unavailable.Store(time.Now().Add(slowest + slack).UnixNano())
	}
	b.wire.open()
}

// wasEmpty implements server.
func (b *backend) wasEmpty(from time.Time) bool { return b.empty.Load() > from.UnixNano() }

// wasUnavailable implements server.
func (b *backend) wasUnavailable(from time.Time) bool { return b.unavailable.Load() > from.UnixNano() }

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

// sessions is the number of sessions that the process knows.
func (b *backend) sessions() int {
	n, err := strconv.Atoi(strings.TrimSpace(get(b.w.t, "http://"+b.addr+"/admin/sessions")))
	if err != nil {
		b.w.t.Error(err)
	}
	return n
}

// change changes the version, by a notice or by another process.
func (b *backend) change() {
	if b.mode != "stateful" && b.rng.IntN(2) == 0 {
		b.offer(b.other())
		return
	}
	b.end(syscall.SIGTERM)
	b.start(b.other())
}

// waitLeft waits until the sessions are gone. Only some backends have any.
func (b *backend) waitLeft() {
	if b.mode != "stateful" && b.mode != "sse" {
		return
	}
	proc.Eventually(b.w.t, "the sessions of "+b.name+" to be ended on the backend", func() bool { return b.sessions() <= 1 }) // the sidecar's own
}
