package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
)

// fakeProcess is a backend process.
type fakeProcess struct {
	tools    []string
	stateful bool   // it knows only its own sessions
	identity string // what its answers carry
	version  string
	failing  Reason // how it fails every question; empty if it is fine
	listing  error  // how it fails to list
	slow     time.Duration
}

// world is a fake network with one address. It implements prober.
type world struct {
	timeout time.Duration

	mu       sync.Mutex
	process  *fakeProcess // nil: nothing listens
	session  *fakeProcess // whose session the probe has
	kept     *fakeProcess // whose connection the sentinel has
	frozen   bool
	deaf     bool // it listens no more, but serves its connections
	pings    int
	connects int
	lists    int
	onList   func()
	closed   bool
}

func (w *world) set(f func(*world)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

// ask waits as long as the process takes, and returns it or why it can't be asked.
func (w *world) ask(ctx context.Context, probe string) (*fakeProcess, error) {
	w.mu.Lock()
	p, frozen, deaf := w.process, w.frozen, w.deaf
	w.mu.Unlock()
	if p == nil || deaf {
		return nil, failure(probe, ReasonRefused, "refused")
	}
	wait := p.slow
	if frozen {
		wait = time.Hour
	}
	if wait > w.timeout {
		wait = w.timeout
	}
	select {
	case <-time.After(wait):
	case <-ctx.Done():
		return nil, failure(probe, ReasonCanceled, "canceled")
	}
	switch {
	case wait == w.timeout:
		return nil, failure(probe, ReasonTimeout, "timeout")
	case p.failing != "":
		return nil, failure(probe, p.failing, "fails")
	}
	return p, nil
}

func (w *world) health(ctx context.Context) (answer, error) {
	_, err := w.ask(ctx, ProbeHealth)
	return answer{}, err
}

func (w *world) ping(ctx context.Context) (answer, error) {
	w.set(func(w *world) { w.pings++ })
	p, err := w.ask(ctx, ProbePing)
	if err != nil {
		return answer{}, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.stateful && w.session != p {
		return answer{}, failure(ProbePing, ReasonSessionLost, "unknown session")
	}
	w.kept = p
	return answer{p.identity}, nil
}

func (w *world) connect(ctx context.Context, _ bool) (hello, error) {
	w.set(func(w *world) { w.connects++ })
	p, err := w.ask(ctx, ProbeConnect)
	if err != nil {
		return hello{}, err
	}
	w.set(func(w *world) { w.session, w.kept = p, p })
	return hello{answer{p.identity}, "fake", p.version}, nil
}

func (w *world) list(ctx context.Context) ([]json.RawMessage, error) {
	w.set(func(w *world) { w.lists++ })
	p, err := w.ask(ctx, ProbeList)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	onList := w.onList
	w.mu.Unlock()
	if onList != nil {
		onList()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if p.stateful && w.session != p {
		return nil, failure(ProbeList, ReasonSessionLost, "unknown session")
	}
	if p.listing != nil {
		return nil, p.listing
	}
	var raw []json.RawMessage
	for _, name := range p.tools {
		raw = append(raw, json.RawMessage(fmt.Sprintf(`{"name":%q}`, name)))
	}
	return raw, nil
}

func (w *world) held(context.Context, time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.kept != nil && w.kept == w.process && !w.frozen
}

func (w *world) drop() {}

func (w *world) run(ctx context.Context) { <-ctx.Done() }

func (w *world) close(context.Context) { w.set(func(w *world) { w.closed = true }) }

// bench is a checker of a world in a bubble of fake time.
type bench struct {
	*Checker
	*world
	t   *testing.T
	reg *prometheus.Registry

	mu2    sync.Mutex
	events []Event
	seen   int
}

// inBubble runs a test with a checker of p.
func inBubble(t *testing.T, configure func(*Config), p *fakeProcess, test func(*bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		cfg.Server, cfg.URL = "s", mustURL(t, "http://127.0.0.1:1/mcp")
		if configure != nil {
			configure(&cfg)
		}
		b := &bench{t: t, world: &world{timeout: cfg.ProbeTimeout, process: p}, reg: prometheus.NewPedanticRegistry()}
		c, err := newChecker(cfg, Deps{Metrics: NewMetrics(b.reg), Notify: func(e Event) {
			b.mu2.Lock()
			defer b.mu2.Unlock()
			b.events = append(b.events, e)
		}})
		if err != nil {
			t.Fatal(err)
		}
		c.backend = b.world
		b.Checker = c
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		synctest.Wait()
		test(b)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if !b.closed {
			t.Error("the session wasn't ended")
		}
	})
}

// pass lets time pass.
func (b *bench) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// kill ends the process, as its connections tell.
func (b *bench) kill() {
	b.set(func(w *world) { w.process = nil })
	b.box.putLost()
	synctest.Wait()
}

// start starts a process where there may be another one.
func (b *bench) start(p *fakeProcess) {
	b.set(func(w *world) { w.process = p })
}

// notice is a list_changed of the backend.
func (b *bench) notice() {
	now := time.Now()
	b.box.put(func(m *mail) { m.noticed = now })
	synctest.Wait()
}

// want checks what was told since the last call, in short.
func (b *bench) want(want ...string) {
	b.t.Helper()
	b.mu2.Lock()
	events := b.events[b.seen:]
	b.seen = len(b.events)
	b.mu2.Unlock()
	var got []string
	for _, e := range events {
		s := e.State.String()
		if e.Swap != nil {
			s += " swap:" + e.Swap.Cause
		}
		if e.Reason != "" {
			s += " " + string(e.Reason)
		}
		if e.State == Settled {
			if e.Tools == nil {
				s += " unknown"
			} else {
				s += fmt.Sprint(" ", e.Tools.names())
			}
		}
		if e.ChangeCause != "" {
			s += " by " + e.ChangeCause
		}
		got = append(got, s)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.t.Errorf("told (-want +got):\n%s", diff)
	}
}

// counter returns the value of a counter or gauge with these label values, in the order of their names.
func (b *bench) counter(name string, labels ...string) float64 {
	b.t.Helper()
	families, err := b.reg.Gather()
	if err != nil {
		b.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "mcp_sidecar_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			var values []string
			for _, l := range m.GetLabel() {
				values = append(values, l.GetValue())
			}
			if slices.Equal(values, labels) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	b.t.Fatalf("no series %s%v", name, labels)
	return 0
}

func (b *bench) count(f func(*world) int) int {
	b.world.mu.Lock()
	defer b.world.mu.Unlock()
	return f(b.world)
}

var errRPC = errors.New("internal error")
