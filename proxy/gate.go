package proxy

import (
	"sync"
	"sync/atomic"
)

// Phase is what is known of a backend.
type Phase int

// The phases, in the order in which a backend passes them after a swap.
const (
	// Unknown means that nobody has looked yet: requests are tried.
	Unknown Phase = iota
	// Away means that the backend doesn't answer.
	Away
	// Ready means that it answers, but its tool list may still grow.
	Ready
	// Settled means that its tool list has stayed the same for the settle time.
	Settled
)

// String returns the phase's name in logs and in the admin API.
func (p Phase) String() string {
	switch p {
	case Away:
		return "away"
	case Ready:
		return "ready"
	case Settled:
		return "settled"
	default:
		return "unknown"
	}
}

// ToolHints is what the proxy must know of a tool to decide whether a call may be
// sent again.
type ToolHints struct {
	Name string
	// Digest changes when the tool's definition does.
	Digest string
	// ReadOnly and Idempotent are the annotations readOnlyHint and
	// idempotentHint.
	ReadOnly, Idempotent bool
}

// BackendState is a verdict on a server's backend.
type BackendState struct {
	Phase Phase
	// Epoch increases by one with every detected swap of the process.
	Epoch uint64
	// Generation numbers what the backend offers. It counts in phase Settled; 0
	// means that there is none yet.
	Generation uint64
	// Known is the newest generation that clients may have been told of, here or by
	// another replica, where that isn't Generation.
	Known uint64
	// Tools are the tools of the generation, nil when they are not known.
	Tools []ToolHints
}

// need is what a request needs of the backend.
type need uint8

const (
	needAnswer  need = iota // an answering backend
	needSettled             // one whose tool list has settled
)

// gate knows whether requests may pass to a backend, and lets them wait until they
// may. It is closed by what traffic shows (suspect, doubt) and opened by verdicts
// from outside (set).
type gate struct {
	// watched says that verdicts can be expected: somebody is told of suspicions.
	watched bool
	now     atomic.Pointer[view] // what look returns

	mu       sync.Mutex
	state    BackendState
	tools    map[string]ToolHints // replaced as a whole
	process  uint64               // +1 for every swap that this gate was told of
	verdicts uint64               // number of calls of set
	breaks   uint64               // number of connections that broke or were refused
	away     bool                 // traffic showed, after the last verdict, that the backend is away
	unsure   bool                 // traffic showed, after the last verdict, that it may be another process
	quiet    bool                 // nothing is held any more
	changed  chan struct{}        // closed at the next change

	held      int
	heldBytes int64
}

func newGate(watched bool) *gate {
	g := &gate{watched: watched, changed: make(chan struct{})}
	g.publish()

	return g
}

// view is a consistent look at a gate. It is never changed.
type view struct {
	state    BackendState
	process  uint64
	verdicts uint64
	breaks   uint64
	away     bool // nothing passes
	unsure   bool // lists don't pass
	untold   bool // that is so by the proxy's own traffic, or nobody has looked yet
	quiet    bool
	changed  <-chan struct{}
	tools    map[string]ToolHints // in the newest settled list
}

// passes reports whether a request may pass.
func (v *view) passes(n need) bool { return !v.away && (n == needAnswer || !v.unsure) }

// generation is the settled generation, 0 when there is none at the moment.
func (v *view) generation() uint64 {
	if v.away || v.unsure || v.state.Phase != Settled {
		return 0
	}

	return v.state.Generation
}

// look returns what is known at the moment.
func (g *gate) look() *view { return g.now.Load() }

// publish makes known what changed. The caller holds the lock.
func (g *gate) publish() {
	v := &view{
		state: g.state, process: g.process, verdicts: g.verdicts, breaks: g.breaks,
		away: g.away, unsure: g.unsure, quiet: g.quiet, changed: g.changed, tools: g.tools,
		untold: g.away || g.unsure || g.state.Phase == Unknown,
	}

	switch g.state.Phase {
	case Away:
		v.away = true
	case Ready:
		v.unsure = true
	case Unknown:
		// Without a watcher nobody will ever say that the list has settled.
		v.unsure = v.unsure || g.watched
	case Settled:
	}

	if !g.watched {
		v.unsure = false
	}

	g.now.Store(v)
}

// set takes a verdict and reports whether the process is another one than before.
func (g *gate) set(s BackendState) (swapped bool) {
	g.mu.Lock()
	defer g.mu.Unlock()

	swapped = g.verdicts > 0 && s.Epoch != g.state.Epoch

	if swapped {
		g.process++
	}

	if s.Phase == Settled {
		g.tools = make(map[string]ToolHints, len(s.Tools))
		for _, t := range s.Tools {
			g.tools[t.Name] = t
		}
	}

	s.Tools = nil // kept as a map
	g.state = s
	g.verdicts++
	g.away, g.unsure = false, false
	g.notify()

	return swapped
}

// suspect closes the gate: the backend refused or broke a connection.
func (g *gate) suspect() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.breaks++

	if g.away {
		g.publish()
		return
	}

	g.away, g.unsure = true, true
	g.notify()
}

// broke notes that a connection broke which says nothing about the backend as a
// whole, but event ids from before it are not to be relied on.
func (g *gate) broke() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.breaks++
	g.publish()
}

// answered opens a gate that the proxy's own traffic closed: a request that went
// ahead without a verdict was answered.
func (g *gate) answered() {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.away {
		g.away = false
		g.notify()
	}
}

// doubt keeps lists back: the backend doesn't know a session that it gave out.
func (g *gate) doubt() {
	g.mu.Lock()
	defer g.mu.Unlock()

	if !g.unsure {
		g.unsure = true
		g.notify()
	}
}

// quiesce makes everything that waits give up, now and from now on.
func (g *gate) quiesce() {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.quiet = true
	g.notify()
}

// notify makes known what changed, and wakes everybody who waits. The caller holds
// the lock.
func (g *gate) notify() {
	before := g.changed
	g.changed = make(chan struct{})
	g.publish()
	close(before)
}

// tool returns the hints of a tool in the newest settled list.
func (g *gate) tool(name string) (ToolHints, bool) {
	t, ok := g.look().tools[name]

	return t, ok
}

// enter takes a place among the held requests, if there is one left.
func (g *gate) enter(bytes int64, maxHeld int, maxBytes int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()

	if g.held >= maxHeld || g.heldBytes+bytes > maxBytes {
		return false
	}

	g.held++
	g.heldBytes += bytes

	return true
}

func (g *gate) leave(bytes int64) {
	g.mu.Lock()
	defer g.mu.Unlock()

	g.held--
	g.heldBytes -= bytes
}

func (g *gate) holding() int {
	g.mu.Lock()
	defer g.mu.Unlock()

	return g.held
}
