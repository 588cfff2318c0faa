package stdio

import (
	"log/slog"
	"os"
	"os/exec"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// queuedLines is how many messages may wait for a process to read them.
const queuedLines = 64

// process is one child process: what is sent to it, and who waits for what.
type process struct {
	b        *Bridge
	log      *slog.Logger
	revision uint64   // of the watched files
	owner    *session // nil if it is common

	cmd   *exec.Cmd
	stdin *os.File
	lines chan outgoing

	launched chan struct{} // closed when it runs, or can't be started
	failure  error         // why it couldn't; set before launched is closed
	gone     chan struct{} // closed when no more messages will come
	idle     chan struct{} // closed when it is retired and nobody waits for it

	nonsense rate.Sometimes // what it writes besides JSON-RPC
	spoke    sync.Once      // it has written a message

	stopping chan struct{} // closed: end it
	retiring chan struct{} // closed: end it when nobody waits any more
	leaving  chan struct{} // closed: it was asked to end, now or then

	mu      sync.Mutex
	next    int64
	pending map[int64]*pending
	tokens  map[string]int64 // progress tokens, as the process knows them
	init    *call            // the initialize, nil before it
	proved  bool             // it answered something else than initialize
	closed  bool             // it takes no more messages
	retired bool             // it takes no more requests
	dead    bool             // gone is closed
	asked   bool             // leaving is closed
	stopped bool             // stopping is closed
	pause   time.Duration    // no process is started for so long after its end
}

// outgoing is a line for a process.
type outgoing struct {
	line []byte
	wire int64     // id of the request that it is, or 0
	x    *exchange // of that request, nil if it is the bridge's own
}

// pending is a request that a process has not answered yet.
type pending struct {
	x       *exchange // nil if the request is the bridge's own
	call    *call     // the bridge's own
	session *session  // nil without one
	id      []byte    // as its client spells it
	token   []byte    // its progress token as its client spells it, nil without one
	key     string    // of its progress token among the process's
	listen  bool      // it is answered by a stream of notifications
	written bool      // the process may have read some of it
}

// call is a request of the bridge's own.
type call struct {
	done   chan struct{} // closed when answer and err are set
	answer message
	err    error
}

func newProcess(b *Bridge, owner *session) *process {
	return &process{
		b: b, log: b.log, revision: b.revision, owner: owner,
		lines:    make(chan outgoing, queuedLines),
		launched: make(chan struct{}), gone: make(chan struct{}), idle: make(chan struct{}),
		stopping: make(chan struct{}), retiring: make(chan struct{}), leaving: make(chan struct{}),
		pending: map[int64]*pending{}, tokens: map[string]int64{},
		nonsense: rate.Sometimes{Interval: time.Minute},
	}
}

// retire takes no more requests and ends the process when those that run are done.
func (p *process) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if p.retired {
		return
	}

	p.retired = true
	p.leave()

	for wire, pd := range p.pending {
		if pd.listen {
			p.drop(wire)
			pd.x.hangUp()
		}
	}

	p.checkIdle()
	close(p.retiring)
}

// stop asks the process to end now.
func (p *process) stop() {
	p.mu.Lock()
	p.leave()
	p.mu.Unlock()

	p.halt()
}

// leave takes note that the process ends because it was asked to. The caller holds
// the lock.
func (p *process) leave() {
	if !p.asked && !p.dead {
		p.asked = true
		close(p.leaving)
	}
}

// halt ends what is left of the process.
func (p *process) halt() {
	p.mu.Lock()
	defer p.mu.Unlock()

	if !p.stopped {
		p.stopped = true
		close(p.stopping)
	}
}

// busy reports whether somebody waits for an answer.
func (p *process) busy() bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, pd := range p.pending {
		if pd.x == nil || !pd.x.isGone() {
			return true
		}
	}

	return false
}

// wait waits for c, at most for d.
func wait(c <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()

	select {
	case <-c:
		return true
	case <-t.C:
		return false
	}
}
