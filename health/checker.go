package health

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// prober asks the backend. Its methods are called one at a time, only run runs beside them. Errors are an [*Error].
type prober interface {
	health(ctx context.Context) (answer, error)
	ping(ctx context.Context) (answer, error)
	connect(ctx context.Context, gone bool) (hello, error)
	list(ctx context.Context) ([]json.RawMessage, error)
	held(ctx context.Context, at time.Time) bool
	drop()
	run(ctx context.Context)
	close(ctx context.Context)
}

var errStopped = errors.New("the checker has stopped")

// Checker watches one server. Its exported methods are safe for concurrent use.
type Checker struct {
	cfg     Config
	log     *slog.Logger
	metrics *Metrics
	notify  func(Event)
	backend prober
	files   *files

	box      *mailbox
	quiesced atomic.Bool
	opaque   atomic.Bool // written by Run only: the backend wants credentials that the probe hasn't got
	started  atomic.Bool
	done     chan struct{} // closed when Run has returned

	mu      sync.Mutex
	current Event // guarded by mu

	// The rest belongs to the goroutine of Run.
	sight
	settling
	waiters []chan<- Event // want to know what the present look leads to
	asked   bool           // somebody waits for an event
	emitted bool           // there was one since
}

// New returns a checker that has not looked yet. It does no I/O.
func New(cfg Config, d Deps) (*Checker, error) {
	c, err := newChecker(cfg, d)
	if err != nil {
		return nil, err
	}
	c.backend, err = newProbe(&c.cfg, d, c.metrics, c.log, signals{
		lost:        c.box.putLost,
		ended:       func() { c.box.put(func(m *mail) { m.ended = true }) },
		listChanged: func() { now := time.Now(); c.box.put(func(m *mail) { m.noticed = now }) },
	}, true)
	if err != nil {
		return nil, fmt.Errorf("making the probe of server %s: %w", cfg.Server, err)
	}
	return c, nil
}

func newChecker(cfg Config, d Deps) (*Checker, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("health of server %q: %w", cfg.Server, err)
	}
	c := &Checker{
		cfg:     cfg,
		log:     d.Logger,
		metrics: d.Metrics,
		notify:  d.Notify,
		box:     newMailbox(),
		done:    make(chan struct{}),
		current: Event{Server: cfg.Server, State: Unknown},
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	c.log = c.log.With("component", "health", "server", cfg.Server)
	if c.metrics == nil {
		c.metrics = NewMetrics(nil)
	}
	if c.notify == nil {
		c.notify = func(Event) {}
	}
	c.metrics.Init(cfg.Server)
	c.files = newFiles(&c.cfg, c.log)
	c.prints = c.files.read()
	c.marks = c.prints.marks
	c.fresh = true
	c.names = cfg.LastTools
	return c, nil
}

// Run looks until ctx ends, then ends the probe's session. It can be called once.
func (c *Checker) Run(ctx context.Context) error {
	if c.started.Swap(true) {
		return errors.New("a checker runs only once")
	}
	defer close(c.done)

	var helpers sync.WaitGroup
	helpers.Go(func() { c.backend.run(ctx) })
	if c.files != nil {
		helpers.Go(func() {
			c.files.run(ctx, func() { c.box.put(func(m *mail) { m.files = true }) })
		})
	}
	defer func() {
		helpers.Wait()
		// The backend should forget the session even though ctx has ended.
		c.backend.close(context.WithoutCancel(ctx))
	}()

	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-timer.C:
		case <-c.box.wake:
		}
		c.round(ctx)
		timer.Reset(time.Until(c.due()))
	}
}

// Suspect says that something is wrong with the backend, or new; the reason is for the log. It never blocks, and several
// calls are one. A look that begins after the call ends in at least one event, even if nothing changed.
func (c *Checker) Suspect(reason string) {
	c.log.Debug("asked to look", "reason", reason)
	c.box.put(func(m *mail) { m.suspect = true })
}

// Check looks now, lists the tools, and returns the event that says what came of it: [Away], or [Settled] with no change
// under way. If ctx ends before that, it returns the last event and an error.
func (c *Checker) Check(ctx context.Context) (Event, error) {
	verdict := make(chan Event, 1)
	c.box.put(func(m *mail) {
		m.suspect, m.full = true, true
		m.waiters = append(m.waiters, verdict)
	})
	select {
	case e := <-verdict:
		return e, nil
	case <-ctx.Done():
		return c.Current(), fmt.Errorf("checking server %s: %w", c.cfg.Server, context.Cause(ctx))
	case <-c.done:
		return c.Current(), fmt.Errorf("checking server %s: %w", c.cfg.Server, errStopped)
	}
}

// Current returns the last event; before the first one its state is [Unknown].
func (c *Checker) Current() Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// SetQuiesced freezes detection, or thaws it: while it is frozen nothing is probed and nothing changes, and who asks is told
// the state of before. A rollout that ends the backend, and then the sidecar, must not look like an outage.
func (c *Checker) SetQuiesced(on bool) {
	if c.quiesced.Swap(on) == on {
		return
	}
	c.box.put(func(m *mail) { m.full, m.suspect = m.full || !on, m.suspect || !on })
}

// round handles what was reported and what is due.
func (c *Checker) round(ctx context.Context) {
	m := c.box.take()
	c.waiters = append(c.waiters, m.waiters...)
	c.asked = m.suspect
	c.emitted = false
	if m.lost {
		c.lostAt = time.Now()
		c.evidence.lost = true
		c.evidence.note(c.lostAt)
	}
	if !c.quiesced.Load() {
		c.heard(m.noticed)
		if m.signs() || !time.Now().Before(c.nextProbe) {
			c.look(ctx, &m)
		}
		for _, l := range m.client {
			c.clientListed(l)
		}
		if c.up() && !c.quiesced.Load() && !time.Now().Before(c.listDue()) {
			c.listTools(ctx)
		}
	}
	if ctx.Err() != nil {
		return
	}
	if c.asked && !c.emitted {
		c.emit(nil, "")
	}
	if c.quiesced.Load() || c.state == Away || c.state == Settled && c.candidate == nil && c.fails == 0 {
		for _, w := range c.waiters {
			w <- c.Current()
		}
		c.waiters = nil
	}
}

// due returns when the next round must be, if nothing is reported before.
func (c *Checker) due() time.Time {
	if c.quiesced.Load() {
		return time.Now().Add(time.Hour)
	}
	if next := c.listDue(); c.up() && next.Before(c.nextProbe) {
		return next
	}
	return c.nextProbe
}

// emit tells the present state. Swaps are told once.
func (c *Checker) emit(changes []Change, cause string) {
	e := Event{
		Server:      c.cfg.Server,
		State:       c.state,
		Epoch:       c.epoch,
		Swap:        c.swap,
		Changes:     changes,
		ChangeCause: cause,
		At:          time.Now(),
	}
	switch c.state {
	case Settled:
		e.Tools = c.shown
	case Away:
		e.Reason = c.reason
	case Unknown, Ready:
	}
	c.swap = nil
	c.emitted = true
	c.mu.Lock()
	e.Seq = c.current.Seq + 1
	c.current = e
	c.mu.Unlock()
	c.notify(e)
}
