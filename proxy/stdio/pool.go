package stdio

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"time"
)

// create returns a new process, for its owner or, without one, for all. The caller
// holds the lock, and launches it.
func (b *Bridge) create(owner *session) (*process, error) {
	if !b.running || !b.starts.allowed(time.Now()) {
		return nil, ErrUnavailable
	}

	serving := 0

	for p := range b.procs {
		if p.revision == b.revision {
			serving++
		}
	}

	if serving >= b.cfg.MaxProcesses && !b.makeRoom() {
		return nil, errTooMany
	}

	p := newProcess(b, owner)
	b.procs[p] = struct{}{}
	b.starts.begin(p)
	b.children.Add(1)

	if owner != nil {
		owner.proc = p
	}

	return p, nil
}

// makeRoom stops the process that will be missed least, if there is one that isn't
// in use. The caller holds the lock.
func (b *Bridge) makeRoom() bool {
	if len(b.spares) > 0 {
		p := b.spares[0].proc
		b.spares = b.spares[1:]
		delete(b.procs, p)
		p.stop()

		return true
	}

	var (
		idlest *session
		since  time.Time
	)

	for _, s := range b.sessions {
		t, idle := s.idleSince()
		if idle && s.proc.owner == s && s.proc.revision == b.revision && (idlest == nil || t.Before(since)) && !s.proc.busy() {
			idlest, since = s, t
		}
	}

	if idlest == nil {
		return false
	}

	b.log.Debug("an idle session made room for a new one")
	b.drop(idlest)

	return true
}

// launch starts a process that was created.
func (b *Bridge) launch(p *process) error {
	defer close(p.launched)

	err := p.launch()
	if err == nil {
		return nil
	}

	p.failure = fmt.Errorf("%w: %w", ErrUnavailable, err)
	_, pause := b.gone(p, true)
	b.log.Warn("the stdio server can't be started, check its command", "err", err, "next_start_in", pause)
	b.children.Done()

	return p.failure
}

// shared returns the process that serves everybody.
func (b *Bridge) shared(ctx context.Context) (*process, error) {
	b.mu.Lock()
	p := b.common

	if p == nil {
		var err error
		if p, err = b.create(nil); err != nil {
			b.mu.Unlock()
			return nil, err
		}

		b.common = p
		b.mu.Unlock()

		return p, b.launch(p)
	}
	b.mu.Unlock()

	select {
	case <-p.launched:
		return p, p.failure
	case <-ctx.Done():
		return nil, ctx.Err() //nolint:wrapcheck // net/http does the same
	}
}

// retire makes the next call of shared start another process.
func (b *Bridge) retire(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if b.common == p {
		b.common = nil
	}
}

// own returns a process that was sent an initialize with these parameters and waits
// for a session.
func (b *Bridge) own(m *message) (*process, *call, error) {
	params := string(m.params.of(m.raw))

	b.mu.Lock()

	if i := slices.IndexFunc(b.spares, func(s spare) bool { return s.params == params }); i >= 0 {
		p := b.spares[i].proc
		b.spares = slices.Delete(b.spares, i, i+1)
		b.mu.Unlock()

		return p, p.initialize(m), nil
	}

	p, err := b.create(&session{id: rand.Text(), used: time.Now()})
	b.mu.Unlock()

	if err == nil {
		err = b.launch(p)
	}

	if err != nil {
		return nil, nil, err
	}

	return p, p.initialize(m), nil
}

// giveBack keeps a process for the next initialize with the same parameters.
func (b *Bridge) giveBack(p *process, m *message) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if _, ok := b.procs[p]; ok && p.revision == b.revision {
		b.spares = append(b.spares, spare{p, string(m.params.of(m.raw))})
	}
}

// admit returns a session that is served by a process. It returns false when the
// process takes no sessions any more.
func (b *Bridge) admit(p *process) (*session, bool) {
	s := p.owner
	if s == nil {
		s = &session{id: rand.Text(), proc: p, used: time.Now()}
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	if _, ok := b.procs[p]; !ok || !b.running || p.revision != b.revision {
		return nil, false
	}

	b.sessions[s.id] = s

	return s, true
}

// claimed reports whether a process is past its start.
func (b *Bridge) claimed(p *process) bool {
	if p.owner == nil {
		return p.started()
	}

	b.mu.Lock()
	defer b.mu.Unlock()

	return b.sessions[p.owner.id] != nil
}

func (b *Bridge) session(id string) *session {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.sessions[id]
}

// remove ends a session.
func (b *Bridge) remove(s *session) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.drop(s)
}

// drop ends a session, and its process if it has one of its own. The caller holds
// the lock.
func (b *Bridge) drop(s *session) {
	delete(b.sessions, s.id)
	s.end(io.EOF)

	if s.proc.owner == s {
		delete(b.procs, s.proc)
		s.proc.stop()
	}
}

// sessionsOf returns the sessions that a process serves.
func (b *Bridge) sessionsOf(p *process) []*session {
	b.mu.Lock()
	defer b.mu.Unlock()

	var of []*session

	for _, s := range b.sessions {
		if s.proc == p {
			of = append(of, s)
		}
	}

	return of
}

// proved takes note that a process works.
func (b *Bridge) proved(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()

	if p.revision == b.revision {
		b.starts.proved()
	}
}

// spoke takes note that a process may work: the next one may be tried.
func (b *Bridge) spoke(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.starts.spoke(p)
}

// gone forgets a process and the sessions that it served, and returns them and how
// long no process is started now that it failed, if it did.
func (b *Bridge) gone(p *process, failed bool) ([]*session, time.Duration) {
	sessions := b.sessionsOf(p)

	b.mu.Lock()
	defer b.mu.Unlock()

	delete(b.procs, p)

	for _, s := range sessions {
		delete(b.sessions, s.id)
	}

	b.spares = slices.DeleteFunc(b.spares, func(s spare) bool { return s.proc == p })

	if b.common == p {
		b.common = nil
	}

	return sessions, b.starts.ended(p, failed && p.revision == b.revision, time.Now())
}
