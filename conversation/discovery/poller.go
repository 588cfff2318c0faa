package discovery

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// slack is how much older than the newest change of the run before something may be and still be new: agent servers write with a delay.
const slack = time.Minute

// registrations is how many are under way at once, for one agent server.
const registrations = 32

// poller looks at one agent server again and again.
type poller struct {
	d      *Discoverer
	target Target
	wake   chan struct{}
	stop   context.CancelFunc
	log    *slog.Logger

	// What the last complete run used and found. Only run uses it.
	matcher *Matcher
	newest  time.Time // change, by the agent server's clock
	fullAt  time.Time
	fails   int
	lastErr string
	told    bool // that no conversation names this sidecar
}

func (p *poller) run(ctx context.Context) {
	wait := p.d.spread()
	for {
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return
		case <-p.wake:
			timer.Reset(p.d.spread())
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-timer.C:
			}
		case <-timer.C:
		}
		select {
		case <-p.wake: // this look does
		default:
		}
		wait = p.next(p.look(ctx))
	}
}

// next returns the wait after a run.
func (p *poller) next(err error) time.Duration {
	if err == nil {
		p.fails = 0
	} else {
		p.fails = min(p.fails+1, 16)
	}
	cfg := p.d.cfg.Load()
	wait := cfg.Interval
	if p.fails > 0 {
		wait = min(cfg.MinBackoff<<(p.fails-1), cfg.MaxBackoff)
	}
	return wait*4/5 + rand.N(wait*2/5+1) //nolint:gosec // spreads load, protects nothing
}

// look does one run.
func (p *poller) look(ctx context.Context) error {
	m, began := p.d.matcher.Load(), time.Now()
	full := m != p.matcher || p.fullAt.IsZero() || began.Sub(p.fullAt) >= p.d.cfg.Load().FullInterval
	found, err := p.search(ctx, m, full)
	if ctx.Err() != nil {
		return err // nobody waits for the next run
	}
	p.d.metrics.ran(p.target.AgentServer, time.Since(began), err)
	p.report(found, err)
	if err != nil {
		return err
	}
	p.matcher = m
	if full {
		p.fullAt = began
	}
	if found.newest.After(p.newest) {
		p.newest = found.newest
	}
	return nil
}

// found is what a run found.
type found struct {
	full   bool
	all    int // conversations
	ours   int // of them that use this sidecar
	newest time.Time
}

// search reads the agent server's conversations, all of them or as far as they changed, and registers those that use this sidecar.
func (p *poller) search(ctx context.Context, m *Matcher, full bool) (found, error) {
	f := found{full: full}
	var failed error
	var last time.Time
	ordered := true
	err := search(ctx, p.target.Client, p.d.cfg.Load().Limits, func(infos []Info) bool {
		var regs []conversation.Registration
		old := false
		for _, i := range infos {
			if i.UpdatedAt.IsZero() || !last.IsZero() && i.UpdatedAt.After(last) {
				ordered = false // then there may be changes anywhere
			}
			last = i.UpdatedAt
			if i.UpdatedAt.After(f.newest) {
				f.newest = i.UpdatedAt
			}
			f.all++
			if reg, ours := i.Registration(m, p.target.Instance, conversation.SourceDiscovery); ours {
				regs = append(regs, reg)
			}
			old = i.UpdatedAt.Before(p.newest.Add(-slack))
		}
		f.ours += len(regs)
		failed = p.registerAll(ctx, regs)
		return failed == nil && (full || !ordered || !old)
	})
	return f, errors.Join(err, failed)
}

// registerAll registers many at once: stores put what comes together into one write.
func (p *poller) registerAll(ctx context.Context, regs []conversation.Registration) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(registrations)
	for _, reg := range regs {
		group.Go(func() error {
			err := p.d.register(ctx, reg)
			if errors.Is(err, conversation.ErrForbidden) || errors.Is(err, conversation.ErrRemoved) {
				return nil
			}
			return err
		})
	}
	return group.Wait()
}

// report logs what is new.
func (p *poller) report(f found, err error) {
	switch {
	case err != nil:
		log := p.log.Debug
		if text := err.Error(); text != p.lastErr {
			p.lastErr = text
			log = p.log.Warn
		}
		log("looking for conversations failed, it is tried again", "err", err)
		return
	case p.lastErr != "":
		p.lastErr = ""
		p.log.Info("looking for conversations works again")
	}
	if f.full && f.all > 0 && f.ours == 0 && !p.told {
		p.told = true
		p.log.Info("no conversation of the agent server names this sidecar; if that is wrong, compare its MCP URLs with --public-url",
			"conversations", f.all)
	}
	p.log.Debug("looked for conversations", "full", f.full, "conversations", f.all, "ours", f.ours)
}
