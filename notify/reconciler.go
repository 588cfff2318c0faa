package notify

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// Registry is what the reconciler needs to know of conversations, and where it
// writes what it found. *conversation.Registry is one.
type Registry interface {
	// Changed is signalled when conversations may have become due, or due earlier.
	Changed() <-chan struct{}
	// Due returns the conversations that need an attempt now, and when the next
	// one will; zero means not before Changed is signalled.
	Due(now time.Time) (ids []conversation.ID, next time.Time)
	// Get returns a conversation, or conversation.ErrNotFound.
	Get(id conversation.ID) (conversation.View, error)
	// Mapped tells whether the conversation's traffic for the server is seen.
	Mapped(id conversation.ID, server string) bool
	// Observed tells whether the conversation completely listed that generation or
	// a newer one in a listing that began at or after since.
	Observed(id conversation.ID, server string, since time.Time, generation uint64) bool
	// Update changes a conversation, or returns conversation.ErrNotFound.
	Update(ctx context.Context, id conversation.ID, fn func(*conversation.Conversation) error) (conversation.Conversation, error)
	// Remove forgets a conversation.
	Remove(ctx context.Context, id conversation.ID) error
}

// refresher calls one agent server.
type refresher interface {
	refresh(ctx context.Context, c call) error
	close()
}

// dialer makes the client of an agent server. It doesn't connect yet.
type dialer func(AgentServer, *clientMetrics) refresher

// Deps are what a [Reconciler] works with.
type Deps struct {
	Registry Registry // required
	// Ready tells whether a server's backend has settled and its traffic is
	// released: a refresh lists the tools through the sidecar. It is called
	// concurrently, must return at once and must not call the Reconciler. Nil means
	// always. Call [Reconciler.Wake] when it changes.
	Ready func(server string) bool
	// Claims says which of several replicas refreshes a conversation. Nil means that
	// this is the only one.
	Claims Claims
	// OnEvent is told what happens. It is called concurrently and must return at
	// once. Nil is nobody.
	OnEvent func(Event)
	// Trace is told of each call of an agent server's action, by the name of its
	// configuration, and when it has ended, with no reason if it went well. The header
	// goes out with the call's requests. Nil: none is traced.
	Trace   func(agentServer string, attempt int) (header http.Header, end func(Reason))
	Logger  *slog.Logger // nil is silent
	Metrics *Metrics     // nil is unregistered
}

// Reconciler brings conversations to the desired generation. Its methods are
// safe for concurrent use.
type Reconciler struct {
	cfg      Config
	registry Registry
	ready    func(string) bool
	claims   Claims
	onEvent  func(Event)
	trace    func(agentServer string, attempt int) (http.Header, func(Reason))
	log      *slog.Logger
	metrics  *Metrics
	dial     dialer

	queue    *queue
	progress *progress
	deferred deferred
	kick     chan struct{}             // a turn ended, or somebody called Wake
	rescan   atomic.Bool               // the registry is to be asked, without Changed
	pause    atomic.Pointer[time.Time] // it isn't to be asked before
	lastRun  atomic.Pointer[time.Time] // when it was
	cut      atomic.Int64              // calls that the end of Run cut off
}

// New returns a reconciler. Nothing happens before [Reconciler.Run].
func New(cfg Config, servers []AgentServer, d Deps) (*Reconciler, error) {
	return newReconciler(cfg, servers, d, func(s AgentServer, m *clientMetrics) refresher { return newClient(s, m) })
}

func newReconciler(cfg Config, servers []AgentServer, d Deps, dial dialer) (*Reconciler, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configuring the reconciler: %w", err)
	}
	if d.Registry == nil {
		return nil, errors.New("configuring the reconciler: it needs a registry")
	}
	if d.Ready == nil {
		d.Ready = func(string) bool { return true }
	}
	if d.OnEvent == nil {
		d.OnEvent = func(Event) {}
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Metrics == nil {
		d.Metrics = NewMetrics(nil)
	}
	r := &Reconciler{
		cfg: cfg, registry: d.Registry, ready: d.Ready, claims: d.Claims, onEvent: d.OnEvent, trace: d.Trace,
		log: d.Logger.With("component", component), metrics: d.Metrics,
		dial: dial, queue: newQueue(cfg.Concurrency), progress: newProgress(), kick: make(chan struct{}, 1),
	}
	r.metrics.workers.Set(float64(cfg.Concurrency))

	if err := r.SetAgentServers(servers); err != nil {
		return nil, err
	}

	return r, nil
}

// SetAgentServers replaces the agent servers. Running calls end as they began;
// what an agent server was found to support is found out again.
func (r *Reconciler) SetAgentServers(servers []AgentServer) error {
	var problems []error
	seen := map[string]bool{}
	for _, s := range servers {
		problems = append(problems, s.validate())
		if seen[s.Name] {
			problems = append(problems, fmt.Errorf("agent server %q: there are two of that name", s.Name))
		}
		seen[s.Name] = true
	}
	if err := errors.Join(problems...); err != nil {
		return fmt.Errorf("configuring agent servers: %w", err)
	}
	lanes := make([]*lane, 0, len(servers))
	for _, s := range servers {
		lanes = append(lanes, r.newLane(s))
	}
	for _, c := range r.queue.setLanes(lanes) {
		c.close()
	}
	r.Wake()

	return nil
}

// PutAgentServer adds an agent server or replaces the one of that name, and leaves
// the others as they are.
func (r *Reconciler) PutAgentServer(s AgentServer) error {
	if err := s.validate(); err != nil {
		return fmt.Errorf("configuring an agent server: %w", err)
	}
	if c := r.queue.putLane(r.newLane(s)); c != nil {
		c.close()
	}
	r.Wake()

	return nil
}

// DropAgentServer forgets the agent server of that name. Running calls end as they
// began.
func (r *Reconciler) DropAgentServer(name string) {
	if c := r.queue.dropLane(name); c != nil {
		c.close()
	}
}

func (r *Reconciler) newLane(s AgentServer) *lane {
	r.metrics.InitAgentServer(s.label())

	return &lane{
		name: s.Name, label: s.label(), client: r.dial(s, r.metrics.client(s.label())), limit: s.Concurrency,
		away: map[conversation.ID]bool{},
	}
}

// Wake makes the reconciler look again soon: the readiness of a server changed,
// for example. It never blocks. Without it the reconciler finds out by itself, later.
func (r *Reconciler) Wake() {
	r.rescan.Store(true)
	r.nudge()
}

func (r *Reconciler) nudge() {
	select {
	case r.kick <- struct{}{}:
	default: // it is on already
	}
}

// LastRun returns when the loop last looked for work, zero before the first time.
func (r *Reconciler) LastRun() time.Time {
	if t := r.lastRun.Load(); t != nil {
		return *t
	}

	return time.Time{}
}

// Run reconciles until ctx ends. Refreshes that are running then get
// ShutdownTimeout to finish; what is left over is logged, and is found again by
// the next Run. It returns nil after a normal end.
func (r *Reconciler) Run(ctx context.Context) error {
	callCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)
	var turns sync.WaitGroup
	timer := time.NewTimer(0)
	defer timer.Stop()
	r.rescan.Store(true)
	var next, notBefore time.Time // when the registry is to be asked; and not before
	for ctx.Err() == nil {
		r.queue.unblock(r.ready)
		now := time.Now()
		if due := r.rescan.Load() || !now.Before(next); due && !now.Before(r.pausedUntil(notBefore)) {
			r.rescan.Store(false)
			next = r.scan(now)
			// Asking costs in proportion to what is due, so it may take a tenth of
			// the time at most.
			took := time.Since(now)
			notBefore = now.Add(took + min(max(10*took, minScanGap), maxScanGap))
		}
		for {
			t, ok := r.queue.take(time.Now())
			if !ok {
				break
			}
			turns.Go(func() { r.turn(ctx, callCtx, t) })
		}
		blocked := r.observeQueue()
		timer.Reset(r.untilNext(next, r.pausedUntil(notBefore), blocked))
		select {
		case <-ctx.Done():
		case <-r.registry.Changed():
			r.rescan.Store(true)
		case <-r.kick:
		case <-timer.C:
		}
	}

	return r.stop(&turns, cancel)
}

const (
	minScanGap = 5 * time.Millisecond
	maxScanGap = time.Second
)

// scan puts what is due into the queue and returns when to ask again.
func (r *Reconciler) scan(now time.Time) time.Time {
	r.lastRun.Store(&now)
	r.metrics.lastRun.Set(float64(now.UnixNano()) / 1e9)
	r.queue.beginScan()
	ids, next := r.registry.Due(now)
	for _, id := range ids {
		queued, ended := r.queue.has(id)
		if ended {
			r.rescan.Store(true)
		}
		if queued || ended || r.deferred.has(id, now) {
			continue
		}
		v, err := r.registry.Get(id)
		if err != nil {
			continue // removed since
		}
		p := r.plan(v)
		r.progress.expect(v, p.targets)
		switch {
		case p.nothing:
		case p.blocked:
			r.queue.block(id, v.At().Name(), p.targets)
		default:
			r.queue.add(id, v.At().Name())
		}
	}
	if later := r.deferred.next(now); !later.IsZero() && (next.IsZero() || later.Before(next)) {
		next = later
	}
	if resync := now.Add(r.cfg.ResyncInterval); next.IsZero() || next.After(resync) {
		next = resync
	}

	return next
}

// pausedUntil returns the later of t and the end of a pause.
func (r *Reconciler) pausedUntil(t time.Time) time.Time {
	if p := r.pause.Load(); p != nil && p.After(t) {
		return *p
	}

	return t
}

// untilNext returns how long the loop may sleep.
func (r *Reconciler) untilNext(next, notBefore time.Time, blocked int) time.Duration {
	if r.rescan.Load() {
		next = notBefore
	}
	if next.Before(notBefore) {
		next = notBefore
	}
	wait := max(time.Until(next), 0)
	if scout := r.queue.scoutAt(); !scout.IsZero() {
		wait = min(wait, max(time.Until(scout), 0))
	}
	if blocked > 0 {
		wait = min(wait, r.cfg.ReadyInterval)
	}

	return wait
}

func (r *Reconciler) observeQueue() (blocked int) {
	waiting, busy, blocked := r.queue.depth()
	r.metrics.queueDepth.Set(float64(waiting))
	r.metrics.workersBusy.Set(float64(busy))

	return blocked
}

// errStopped is the cause of calls that were cut off at the end.
var errStopped = errors.New("the sidecar is stopping")

// stop waits for the running turns, for a bounded time, and says what is left.
func (r *Reconciler) stop(turns *sync.WaitGroup, cancel context.CancelCauseFunc) error {
	timer := time.AfterFunc(r.cfg.ShutdownTimeout, func() { cancel(errStopped) })
	defer timer.Stop()
	turns.Wait()
	r.observeQueue()
	pending, _, _ := r.queue.depth()
	if cut := r.cut.Swap(0); pending > 0 || cut > 0 {
		r.log.Info("stopped with refreshes pending, the next start continues", "pending", pending, "interrupted", cut)
	}

	return nil
}
