package stdio

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// Bridge serves a stdio server over HTTP. It serves while Run runs, and is safe for
// concurrent use.
type Bridge struct {
	cfg    Config
	log    *slog.Logger
	onSwap func()
	busy   rate.Sometimes // sessions are refused

	greeting *message

	spawner  spawner
	children sync.WaitGroup // child processes

	mu       sync.Mutex
	ran      bool
	running  bool
	revision uint64 // +1 when the watched files change
	starts   starts
	procs    map[*process]struct{}
	sessions map[string]*session
	spares   []spare
	common   *process // of the current revision, nil without one
}

// spare is a process that was started for somebody who didn't wait for it.
type spare struct {
	proc   *process
	params string // of the initialize that it was sent
}

var _ http.RoundTripper = (*Bridge)(nil)

// New returns a bridge. It starts nothing.
func New(cfg Config, d Deps) (*Bridge, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configuring the stdio server: %w", err)
	}

	greeting, err := newGreeting(cfg.Version)
	if err != nil {
		return nil, fmt.Errorf("configuring the stdio server: %w", err)
	}

	b := &Bridge{
		cfg: cfg, log: d.Logger, onSwap: d.OnSwap, greeting: greeting,
		busy:     rate.Sometimes{Interval: time.Minute},
		spawner:  spawner{requests: make(chan spawn)},
		starts:   starts{min: cfg.BackoffMin, max: cfg.BackoffMax},
		procs:    map[*process]struct{}{},
		sessions: map[string]*session{},
	}

	if b.log == nil {
		b.log = slog.New(slog.DiscardHandler)
	}

	b.log = b.log.With("component", "stdio")

	if b.onSwap == nil {
		b.onSwap = func() {}
	}

	return b, nil
}

// Run serves until ctx ends. Then it ends all processes and returns when nothing of
// them is left. It can be called once.
func (b *Bridge) Run(ctx context.Context) error {
	b.mu.Lock()
	again := b.ran
	b.ran = true
	b.mu.Unlock()

	if again {
		return errors.New("running the stdio server: it has run before")
	}

	var workers sync.WaitGroup

	workers.Go(b.spawner.run)

	// What is watched is looked at before the first process can be started from
	// it.
	if w := b.watcher(); w != nil {
		workers.Go(func() {
			w.Run(ctx, func(path string) {
				b.log.Info("a watched file changed, replacing the processes of the stdio server", "path", path)
				b.replace()
			})
		})
	}

	b.mu.Lock()
	b.running = true
	b.mu.Unlock()

	<-ctx.Done()

	b.mu.Lock()
	b.running = false

	for p := range b.procs {
		p.stop()
	}
	b.mu.Unlock()

	b.children.Wait()
	close(b.spawner.requests)
	workers.Wait()

	return nil
}

// replace lets new processes take the place of those that run.
func (b *Bridge) replace() {
	b.mu.Lock()
	b.revision++
	b.starts.proved()
	b.spares, b.common = nil, nil
	procs, sessions := slices.Collect(maps.Keys(b.procs)), slices.Collect(maps.Values(b.sessions))
	b.mu.Unlock()

	for _, p := range procs {
		if p.owner == nil || b.claimed(p) {
			p.retire()
		} else {
			p.stop()
		}
	}

	for _, s := range sessions {
		s.end(io.EOF)
	}

	b.onSwap()
}
