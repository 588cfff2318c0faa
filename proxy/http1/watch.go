package http1

import (
	"sync"
	"time"
)

// watchAfter is how long a request may last before its client is watched. Most have
// their answer by then, and nobody needs to look for them.
const watchAfter = 20 * time.Millisecond

// watch ends the context of a request that takes long when its client leaves. To see
// that, it reads on: what comes is the beginning of the next request.
type watch struct {
	c     *conn
	timer *time.Timer // nil before the first request

	mu       sync.Mutex
	ctx      *requestContext // nil between requests
	bodyRead bool            // before, the client's bytes are those of the body
	due      bool            // the request takes long
	running  chan struct{}   // closed when the read has ended; nil without one
	stopping bool            // it is to end

	seen [1]byte // for the connection's reader, if has
	has  bool
}

// begin begins with a request.
func (w *watch) begin(ctx *requestContext, bodyRead bool) {
	w.mu.Lock()
	w.ctx, w.bodyRead, w.due = ctx, bodyRead, false
	w.mu.Unlock()

	if w.timer == nil {
		w.timer = time.AfterFunc(watchAfter, w.takesLong)
	} else {
		w.timer.Reset(watchAfter)
	}
}

// takesLong is the timer's. It may be late and meet the next request, to no harm.
func (w *watch) takesLong() {
	w.mu.Lock()
	w.due = true
	w.lookOut()
}

// bodyOver notes that the body has been read.
func (w *watch) bodyOver() {
	w.mu.Lock()
	w.bodyRead = true

	if !w.due {
		w.mu.Unlock()
		return
	}

	go w.lookOut()
}

// lookOut reads on until something comes. It is called with the lock, and unlocks.
func (w *watch) lookOut() {
	if w.ctx == nil || !w.bodyRead || w.running != nil {
		w.mu.Unlock()
		return
	}

	ctx := w.ctx
	w.running = make(chan struct{})
	_ = w.c.conn.SetReadDeadline(time.Time{})

	if len(w.c.ahead()) == 0 { // nobody reads ahead now
		w.c.release()
	}

	w.mu.Unlock()

	n, _ := w.c.conn.Read(w.seen[:])

	w.mu.Lock()
	w.has = n > 0
	gone := n == 0 && !w.stopping
	close(w.running)
	w.mu.Unlock()

	if gone {
		ctx.end()
	}
}

// end ends the watch, so that the connection can be read again. It may be called
// twice.
func (w *watch) end() {
	w.timer.Stop()

	w.mu.Lock()
	w.ctx = nil
	running := w.running

	if running != nil {
		w.stopping = true
		_ = w.c.conn.SetReadDeadline(time.Unix(1, 0))
	}
	w.mu.Unlock()

	if running == nil {
		return
	}

	<-running

	w.running, w.stopping = nil, false
	w.c.until = time.Unix(1, 0) // what is set now
}
