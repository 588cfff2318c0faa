package main

import (
	"context"
	"encoding/json"
	"errors"
	"reflect"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/health"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
	"github.com/mcp-sidecar/mcp-sidecar/proxy/stdio"
)

// settleTimeout bounds how long the recording of a generation may hold up what a
// checker finds.
const settleTimeout = 10 * time.Second

// backend is one server with its checker, and what follows from what the checker
// finds. When something changes that the checker depends on, another backend
// takes its place.
type backend struct {
	all     *backends
	name    string
	watched health.Config // what the checker depends on
	headers string        // and the file with its headers
	process process       // and what runs, if it is a stdio backend
	checker *health.Checker
	bridge  *stdio.Bridge      // to the processes of a stdio backend
	via     proxy.Upstream     // to the bridge
	stop    context.CancelFunc // ends the checker; used by backends.Run only
	done    chan struct{}      // closed when it has ended

	turn        sync.Mutex      // guards what follows, and keeps in order what is told of the backend; taken before mu
	epoch       uint64          // added to the checker's, which begins at 0: see succeed
	generation  uint64          // that was announced last
	told        uint64          // what the proxy was told of it
	tools       *health.Toolset // of that generation, if this process saw it
	hints       []proxy.ToolHints
	hintsOf     string // hash
	swapPending bool   // the process is another one, what it offers hasn't settled
	swappedAt   uint64 // the newest generation at that moment

	mu     sync.Mutex // guards the rest
	server config.Server
	last   health.Event
	info   *admin.Info
	swaps  uint64
	swap   *admin.Swap
	change *admin.Change
}

// process is what a stdio backend runs.
type process struct {
	command     []string
	directory   string
	environment map[string]string
	shared      bool
	watch       []string
}

func processOf(s config.Server) process {
	if s.Transport != config.TransportStdio {
		return process{}
	}
	return process{command: s.Command, directory: s.Directory, environment: s.Environment, shared: s.Shared, watch: s.Watch}
}

// run runs the checker until ctx ends, and for as long the processes of a stdio
// backend, which the checker says goodbye to.
func (b *backend) run(ctx context.Context) error {
	defer close(b.done)
	if b.bridge == nil {
		return b.checker.Run(ctx)
	}
	bridgeCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	bridge := make(chan error, 1)
	go func() { bridge <- b.bridge.Run(bridgeCtx) }()
	err := b.checker.Run(ctx)
	stop()
	return errors.Join(err, <-bridge)
}

// succeed takes over what is known from the backend before, which has ended. That
// a checker was replaced is no swap of the process; another address is one.
func (b *backend) succeed(old *backend) {
	old.mu.Lock()
	defer old.mu.Unlock()
	b.epoch = old.epoch + old.last.Epoch
	if b.watched.URL.String() != old.watched.URL.String() || b.watched.Transport != old.watched.Transport || !reflect.DeepEqual(b.process, old.process) {
		b.epoch++
	}
	b.generation, b.tools, b.hints, b.hintsOf, b.swapPending = old.generation, old.tools, old.hints, old.hintsOf, old.swapPending
	b.info, b.swaps, b.swap, b.change = old.info, old.swaps, old.swap, old.change
}

// onEvent passes on what the checker found. The order matters: the registry has
// a generation before traffic flows, and traffic flows before conversations are
// refreshed.
func (b *backend) onEvent(e health.Event) {
	b.turn.Lock()
	defer b.turn.Unlock()
	if e.Swap != nil {
		b.swapPending, b.swappedAt = true, b.newest()
		b.all.feed.Publish(admin.Event{Type: "swap", At: e.Swap.DetectedAt, Server: b.name, Cause: e.Swap.Cause})
	}
	if e.State == health.Settled {
		b.settle(e)
	}
	b.all.tracing.Backend(e)
	b.tellProxy(e)
	b.mu.Lock()
	before := b.last.State
	b.last = e
	if e.Swap != nil {
		b.swaps++
		b.swap = &admin.Swap{At: e.Swap.DetectedAt, Cause: e.Swap.Cause}
	}
	if e.Tools != nil {
		b.info = &admin.Info{Name: e.Tools.ServerName, Version: e.Tools.ServerVersion}
	}
	b.mu.Unlock()
	b.see()
	b.all.wake()
	if e.State != before {
		b.all.feed.Publish(admin.Event{Type: "state", At: e.At, Server: b.name, State: e.State.String()})
	}
}

// settle gives what the server offers its generation.
func (b *backend) settle(e health.Event) {
	registry := b.all.registry
	if !b.adoptable(e) {
		return
	}
	swapped := b.swapPending && (b.all.group == nil || b.swappedAt == b.newest())
	b.swapPending = false
	changed := false
	earlier, _ := registry.Generation(b.name)
	before := b.tools
	if e.Tools == nil {
		b.hints, b.hintsOf = nil, ""
	} else {
		digests := make(map[string]string, len(e.Tools.Tools))
		for _, t := range e.Tools.Tools {
			digests[t.Name] = t.Digest
		}
		ctx, cancel := context.WithTimeout(context.Background(), settleTimeout)
		defer cancel()
		var err error
		if _, changed, err = registry.Settle(ctx, b.name, e.Tools.Hash, digests, e.Tools.ListedAt); err != nil {
			b.all.log.Error("generation not recorded", "server", b.name, "err", err)
			return
		}
		if b.hintsOf != e.Tools.Hash {
			b.hints, b.hintsOf = toolHints(e.Tools), e.Tools.Hash
		}
		b.tools = e.Tools
	}
	if swapped && !changed && b.all.refreshOnSwap() {
		registry.Swapped(b.name)
	}
	g, ok := registry.Generation(b.name)
	if !ok || g.Number == b.generation {
		return
	}
	b.generation = g.Number
	b.all.metrics.SetGeneration(b.name, g.Number)
	b.all.log.Info("generation", "server", b.name, "generation", g.Number, "hash", g.Hash, "tools", len(g.Tools))
	b.all.discover()
	c := newChange(e, before, earlier.Tools)
	c.Generation = g.Number
	if e.ChangeCause != "" || b.all.group != nil {
		b.mu.Lock()
		b.change = c
		b.mu.Unlock()
	}
	ev := generationEvent(c)
	ev.At, ev.Server, ev.Hash, ev.Tools = g.At, b.name, g.Hash, len(g.Tools)
	b.all.feed.Publish(ev)
}

// settled tells whether the tools are settled and traffic flows.
func (b *backend) settled() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last.State == health.Settled
}

// lastChange is what the newest generation changed, with all details.
func (b *backend) lastChange() *admin.Change {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.change
}

func phaseOf(s health.State) proxy.Phase {
	switch s {
	case health.Away:
		return proxy.Away
	case health.Ready:
		return proxy.Ready
	case health.Settled:
		return proxy.Settled
	default:
		return proxy.Unknown
	}
}

// toolHints reads the annotations that decide about replays. What isn't as the
// specification has it (2025-06-18, server/tools, "Tool") hints at nothing.
func toolHints(ts *health.Toolset) []proxy.ToolHints {
	hints := make([]proxy.ToolHints, len(ts.Tools))
	for i, t := range ts.Tools {
		var d struct {
			Annotations struct {
				ReadOnly   bool `json:"readOnlyHint"`
				Idempotent bool `json:"idempotentHint"`
			} `json:"annotations"`
		}
		if json.Unmarshal(t.Raw, &d) != nil {
			d.Annotations.ReadOnly, d.Annotations.Idempotent = false, false
		}
		hints[i] = proxy.ToolHints{Name: t.Name, Digest: t.Digest, ReadOnly: d.Annotations.ReadOnly, Idempotent: d.Annotations.Idempotent}
	}
	return hints
}

// same tells whether the checker may go on for another configuration of the
// server.
func (b *backend) same(s config.Server) bool {
	return reflect.DeepEqual(b.watched, healthConfig(s)) && b.headers == s.Probe.HeadersFile && reflect.DeepEqual(b.process, processOf(s))
}

// snapshot is what the admin API shows.
func (b *backend) snapshot() admin.Server {
	b.mu.Lock()
	defer b.mu.Unlock()
	s := admin.Server{
		Name: b.name, Path: b.server.Path, Upstream: config.RedactURL(b.server.Upstream), Transport: b.server.Transport,
		State: b.last.State.String(), Tools: []admin.Tool{}, ServerInfo: b.info,
		Swaps: b.swaps, LastSwap: b.swap,
	}
	if b.change != nil {
		short := *b.change
		short.Tools = nil
		s.LastChange = &short
	}
	if g, ok := b.all.registry.Generation(b.name); ok {
		s.Generation, s.Hash, s.SettledAt = g.Number, g.Hash, &g.At
		for _, name := range toolNames(g) {
			s.Tools = append(s.Tools, admin.Tool{Name: name, Digest: g.Tools[name]})
		}
	}
	return s
}
