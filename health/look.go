package health

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"
)

// evidence is what was seen since the process last answered.
type evidence struct {
	refused bool // nothing listened
	hungUp  bool // new connections ended without an answer, as behind a port that something else holds open
	lost    bool // a connection ended that should have stayed

	since time.Time // when the first of this was seen
}

func (e *evidence) note(now time.Time) {
	if e.since.IsZero() {
		e.since = now
	}
}

// ended reports whether the process of before is gone, unless one of its connections still serves.
func (e *evidence) ended() bool { return e.refused || e.hungUp && e.lost }

// sight is what the looks found.
type sight struct {
	state     State
	epoch     uint64
	swap      *Swap  // not told yet
	reason    Reason // why it is away
	evidence  evidence
	contacted bool // it has answered once
	connected bool // the handshake is with the process of now

	pending string // why the process is another one, until it answers
	gone    bool   // the probe's session is known to be lost

	server    hello
	identity  string
	retired   []string // identities of before
	prints    footprint
	marks     string    // of every watched file, at the last look
	lostAt    time.Time // when a connection last ended that should have stayed
	swappedAt time.Time
	losses    []time.Time // when sessions were lost for no visible reason

	fails, passes int
	phase         time.Time // when it went away, or its reason changed
	nextProbe     time.Time
}

func (s *sight) up() bool { return s.state == Ready || s.state == Settled }

// look asks the backend once, and acts on what it finds.
func (c *Checker) look(ctx context.Context, m *mail) {
	if m.lost {
		c.backend.drop() // its other connections are likely dead too
	}
	suspicious := m.signs() || c.contacted && !c.connected
	err := c.ask(ctx)
	if suspicious && reasonOf(err) == ReasonNotReady && c.up() {
		err = c.ask(ctx) // before it counts at once
	}
	if ctx.Err() != nil || c.quiesced.Load() {
		return // what was found stays pending
	}
	switch reason := reasonOf(err); reason {
	case "", ReasonUnauthorized:
		c.answered(m)
	default:
		c.failed(reason, err, suspicious)
	}
}

// ask finds out whether the backend answers, and, in pending, whether it is another process than before.
func (c *Checker) ask(ctx context.Context) error {
	var fromHealth answer
	if c.cfg.HealthURL != nil {
		var err error
		if fromHealth, err = c.backend.health(ctx); err != nil {
			return err
		}
	}
	if c.contacted && c.pending == "" && c.evidence.ended() && !c.backend.held(ctx, c.evidence.since) {
		return c.startOver(ctx, CauseRestart)
	}
	if !c.connected {
		return c.startOver(ctx, c.pending)
	}
	a, err := c.backend.ping(ctx)
	if reasonOf(err) == ReasonReset && !errors.Is(err, errStreamEnded) {
		a, err = c.backend.ping(ctx) // once more, over a new connection
	}
	switch {
	case errors.Is(err, errStreamEnded):
		// Streams may end for any reason.
		c.evidence.lost, c.gone = true, true
		c.evidence.note(time.Now())
		return c.startOver(ctx, "")
	case reasonOf(err) == ReasonSessionLost:
		c.gone = true
		return c.startOver(ctx, c.sessionLost())
	case err != nil:
		return err
	}
	now := c.files.read()
	if now.marks != c.marks {
		c.marks, c.nextList = now.marks, time.Time{} // reason enough to list
	}
	switch {
	case c.isNew(cmp.Or(a.identity, fromHealth.identity)):
		return c.startOver(ctx, CauseIdentity)
	case c.pidChanged(ctx, now):
		return c.startOver(ctx, CausePIDFile)
	case c.evidence.lost:
		return c.startOver(ctx, "")
	}
	return nil
}

// startOver does the handshake with a process that may be, or for a known cause is, another one.
func (c *Checker) startOver(ctx context.Context, cause string) error {
	c.connected, c.pending = false, cause
	// A process that is on its way out may answer on its connections for a while. The next one is found by dialing.
	c.backend.drop()
	h, err := c.backend.connect(ctx, c.gone || cause == CauseRestart)
	if err != nil {
		unauthorized := reasonOf(err) == ReasonUnauthorized
		c.opaque.Store(unauthorized)
		c.contacted = c.contacted || unauthorized
		return err
	}
	before := c.server
	c.server, c.connected, c.gone = h, true, false
	if c.opaque.Swap(false) {
		c.nextList = time.Time{} // the credentials came
	}
	switch {
	case !c.contacted || c.pending != "":
	case c.isNew(h.identity):
		c.pending = CauseIdentity
	case c.evidence.lost && before != (hello{}) && (h.name != before.name || h.version != before.version):
		c.pending = CauseServerInfo
	}
	c.contacted = true
	if h.identity != "" && h.identity != c.identity {
		c.retire(c.identity)
		c.identity = h.identity
	}
	return nil
}

// isNew reports whether an identity is one that no process had. Where several take turns, for instance while a rollout
// overlaps, none of them is new a second time.
func (c *Checker) isNew(identity string) bool {
	if identity == "" || identity == c.identity || slices.Contains(c.retired, identity) {
		return false
	}
	if c.identity == "" {
		c.identity = identity // the first one seen
		return false
	}
	c.retire(c.identity)
	c.identity = identity
	return true
}

func (c *Checker) retire(identity string) {
	const most = 32
	if identity == "" {
		return
	}
	c.retired = append(c.retired, identity)
	c.retired = c.retired[max(0, len(c.retired)-most):]
}

// pidChanged reports whether the pid file says that the process is another one. A file that is written late, after the swap
// was seen, says nothing new; one that is written early counts once the old process doesn't serve any more.
func (c *Checker) pidChanged(ctx context.Context, now footprint) bool {
	before := c.prints
	switch late := !c.swappedAt.IsZero() && now.at.Sub(c.swappedAt) < c.cfg.ShrinkGrace; {
	case now.pidMark == before.pidMark:
		c.prints.at = now.at
		return false
	case now.pid == "":
		return false // being written, or its process is on the way out: what it said stays known
	case late, before.pid == "", !now.another(before) && !c.evidence.lost:
		c.prints = now
		return false
	case c.lostAt.Before(before.since) && c.backend.held(ctx, before.at):
		return false // the process that the file named still serves
	default:
		c.prints = now
		return true
	}
}

// sessionLost returns the cause of a swap that a lost session is. Behind some addresses sessions don't last: several workers
// that share none, or a server that forgets. If they are lost again and again with nothing else to see, they prove nothing.
func (c *Checker) sessionLost() string {
	const (
		most   = 3
		within = time.Minute
	)
	if c.evidence != (evidence{}) || c.cfg.Transport == TransportStdio {
		return CauseSessionLost
	}
	now := time.Now()
	c.losses = slices.DeleteFunc(append(c.losses, now), func(t time.Time) bool { return now.Sub(t) > within })
	if len(c.losses) < most {
		return CauseSessionLost
	}
	if len(c.losses) == most {
		c.log.Warn("the probe's sessions don't last, so their loss is no sign of a swap any more; is this several workers behind one address?")
	}
	return ""
}

// answered acts on a sign of life.
func (c *Checker) answered(m *mail) {
	now := time.Now()
	c.fails = 0
	c.passes++
	c.evidence = evidence{}
	if !c.up() && c.passes < c.cfg.Passes {
		c.nextProbe = now.Add(c.retryPace(now))
		return
	}
	c.nextProbe = now.Add(c.cfg.ProbeInterval)
	cause := c.pending
	c.pending = ""
	if cause != "" {
		c.swapped(cause, now)
	}
	if m.full || m.lost || m.files {
		c.nextList = now
	} else if m.suspect {
		c.suspected(now)
	}
	if cause != "" || !c.up() {
		if !c.up() {
			c.metrics.setUp(c.cfg.Server, true)
			c.log.Info("the backend answers", "server_name", c.server.name, "server_version", c.server.version)
		}
		c.state = Ready
		c.nextList = now
		c.emit(nil, "")
	}
	if c.opaque.Load() {
		c.settleUnknown(ReasonUnauthorized)
	}
}

func (c *Checker) swapped(cause string, now time.Time) {
	c.epoch++
	c.swap = &Swap{Cause: cause, DetectedAt: now}
	c.swappedAt = now
	c.prints = c.files.read()
	c.unsettle()
	c.metrics.swaps.WithLabelValues(c.cfg.Server, cause).Inc()
	c.log.Info("the backend was swapped", "cause", cause, "epoch", c.epoch)
}

// failed acts on a question without a good answer.
func (c *Checker) failed(reason Reason, err error, suspicious bool) {
	now := time.Now()
	c.passes = 0
	c.fails++
	c.log.Debug("the backend failed a probe", "reason", string(reason), "err", err, "fails", c.fails)
	atOnce := false
	switch reason {
	case ReasonRefused:
		c.evidence.refused, atOnce = true, true
		c.evidence.note(now)
	case ReasonReset:
		c.evidence.hungUp, atOnce = true, true
		c.evidence.note(now)
	case ReasonNotReady, ReasonRPCError, ReasonInvalid:
		atOnce = suspicious
	default:
	}
	if c.up() && !atOnce && c.fails < c.cfg.Fails {
		c.nextProbe = now.Add(c.cfg.ProbeInterval)
		return
	}
	if c.state == Away {
		if reason != c.reason {
			c.reason, c.phase = reason, now
		}
		c.nextProbe = now.Add(c.retryPace(now))
		return
	}
	if c.up() {
		c.metrics.setUp(c.cfg.Server, false)
	}
	c.state, c.reason, c.phase = Away, reason, now
	c.nextProbe = now.Add(c.retryPace(now))
	c.log.Info("the backend is away", "reason", string(reason), "err", err)
	c.emit(nil, "")
}

// retryPace is how soon to look again while the backend is away: soon after it went, since then it mostly comes back, and
// later in proportion to how long it has been gone. Asking a port on which nothing listens costs next to nothing, a server
// that starts has better things to do.
func (c *Checker) retryPace(now time.Time) time.Duration {
	const (
		slowest = 250 * time.Millisecond
		refused = 10 * time.Millisecond
		busy    = 25 * time.Millisecond
	)
	gone := now.Sub(c.phase)
	if c.reason == ReasonRefused {
		return min(max(gone/200, refused), slowest)
	}
	return min(max(gone/20, busy), slowest)
}
