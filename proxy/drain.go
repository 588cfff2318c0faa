package proxy

import (
	"context"
	"sync"
	"time"
)

// Quiesce prepares for the end while traffic goes on: nothing is held any more,
// open streams end, and clients are asked to use another connection for their next
// request.
func (p *Proxy) Quiesce() {
	if p.quiet.Swap(true) {
		return
	}

	for _, s := range p.current.Load().servers {
		s.gate.quiesce()
		s.endStreams()
	}
}

// Drain quiesces and returns when no request runs any more, or with ctx's error.
// Listening streams don't count as running: they end at once, also new ones.
// Requests that come meanwhile are still served.
func (p *Proxy) Drain(ctx context.Context) error {
	p.draining.Store(true)
	p.Quiesce()

	for _, s := range p.current.Load().servers {
		s.endStreams() // those that were opened since an earlier Quiesce
	}

	for {
		idle := p.running.wait()
		if idle == nil {
			return nil
		}

		select {
		case <-idle:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// stop ends what a server that was removed from the configuration still does.
func (s *server) stop() {
	s.gate.quiesce()
	s.subscriptions.close()
	s.endStreams()

	for _, sess := range s.sessions.all() {
		sess.quiet()
		s.drop(sess)
	}
}

// endStreams ends the listening streams of all sessions and the subscriptions.
func (s *server) endStreams() {
	for _, sess := range s.sessions.all() {
		sess.endStreams()
	}

	for _, sub := range s.subscriptions.all() {
		sub.end()
	}
}

// sweepEvery bounds how often idle sessions are looked for.
const (
	sweepLeast = 100 * time.Millisecond
	sweepMost  = time.Minute
)

// sweep lets idle sessions go until ctx ends.
func (p *Proxy) sweep(ctx context.Context) {
	for {
		cfg := p.config()
		timer := time.NewTimer(min(max(cfg.SessionIdle/4, sweepLeast), sweepMost))

		select {
		case now := <-timer.C:
			for _, s := range p.current.Load().servers {
				s.evict(ctx, now.Add(-cfg.SessionIdle))
			}

			if b, ok := p.blobs.(*memoryBlobs); ok {
				b.prune(now)
			}
		case <-ctx.Done():
			timer.Stop()
			return
		}
	}
}

// running counts the requests that are being served.
type running struct {
	mu   sync.Mutex
	n    int
	idle chan struct{} // closed when n falls to zero; nil while nobody waits for that
}

func (r *running) begin() {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.n++
}

func (r *running) end() {
	r.mu.Lock()
	defer r.mu.Unlock()

	r.n--

	if r.n == 0 && r.idle != nil {
		close(r.idle)
		r.idle = nil
	}
}

// wait returns a channel that is closed when nothing runs, nil when that is so
// now.
func (r *running) wait() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()

	if r.n == 0 {
		return nil
	}

	if r.idle == nil {
		r.idle = make(chan struct{})
	}

	return r.idle
}

// tasks are what the proxy does for several requests at once, so that the end of
// one of them must not end it.
type tasks struct {
	mu      sync.Mutex
	stopped bool
	cancels map[*context.CancelFunc]struct{}
	wg      sync.WaitGroup
}

// start runs f with the values of ctx, but not with its end, for at most the given
// time. After stop it does nothing and returns false.
func (t *tasks) start(ctx context.Context, limit time.Duration, f func(context.Context)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()

	if t.stopped {
		return false
	}

	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	if t.cancels == nil {
		t.cancels = make(map[*context.CancelFunc]struct{})
	}

	t.cancels[&cancel] = struct{}{}

	t.wg.Go(func() {
		defer func() {
			t.mu.Lock()
			delete(t.cancels, &cancel)
			t.mu.Unlock()
			cancel()
		}()

		f(ctx)
	})

	return true
}

// stop ends all tasks and waits for them.
func (t *tasks) stop() {
	t.mu.Lock()
	t.stopped = true

	for cancel := range t.cancels {
		(*cancel)()
	}
	t.mu.Unlock()

	t.wg.Wait()
}
