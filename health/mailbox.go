package health

import (
	"sync"
	"time"
)

// mail is everything that was reported since the last look. Reports of one kind are one.
type mail struct {
	suspect bool // somebody wants a verdict
	full    bool // and a listing in any case
	lost    bool // a connection ended that should have stayed
	ended   bool // the probe's stream ended
	files   bool // a watched file changed

	noticed time.Time // when the backend last said list_changed
	waiters []chan<- Event
	client  []clientListing
}

// signs reports whether something wants an immediate look.
func (m *mail) signs() bool { return m.suspect || m.lost || m.ended || m.files }

// mailbox takes reports from anywhere for the goroutine that looks.
type mailbox struct {
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	mail   mail
	losses uint64 // connections lost, ever
}

func newMailbox() *mailbox { return &mailbox{wake: make(chan struct{}, 1)} }

func (b *mailbox) put(report func(*mail)) {
	b.mu.Lock()
	report(&b.mail)
	b.mu.Unlock()
	select {
	case b.wake <- struct{}{}:
	default:
	}
}

func (b *mailbox) take() mail {
	b.mu.Lock()
	defer b.mu.Unlock()
	m := b.mail
	b.mail = mail{}
	return m
}

func (b *mailbox) putLost() {
	b.put(func(m *mail) {
		m.lost = true
		b.losses++
	})
}

// lossCount counts the connections lost, ever: what spans a loss may come from two processes.
func (b *mailbox) lossCount() uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.losses
}
