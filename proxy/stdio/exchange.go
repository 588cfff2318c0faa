package stdio

import (
	"io"
	"net/http"
	"strings"
	"sync"
)

// exchange is a POST that waits for answers: of one request, or of those in a
// batch. It becomes an event stream when something else has to be told first.
type exchange struct {
	json, events bool // media types that the client takes
	modern       bool
	onLeave      func() // called once, when the client left before the end; may be nil

	body    *stream
	settled chan struct{} // closed when the header of the HTTP response is known

	mu      sync.Mutex
	left    int      // answers to come
	early   [][]byte // answers, before it is settled
	stream  bool     // the HTTP response is an event stream
	decided bool     // settled is closed
	err     error    // instead of an HTTP response
	gone    bool     // the client left

	begun int // lines of it that the process may have read; guarded by the process's lock
}

func newExchange(h http.Header, requests int, modern bool, limit int) *exchange {
	accept := strings.Join(h["Accept"], ",")
	x := &exchange{
		events:  strings.Contains(accept, typeEvents) || strings.Contains(accept, "*/*"),
		modern:  modern,
		left:    requests,
		settled: make(chan struct{}),
	}
	x.json = !x.events || strings.Contains(accept, typeJSON) || strings.Contains(accept, "*/*")
	x.body = newStream(limit, x.leave)

	return x
}

// deliver passes a message on. It returns false when there is nobody to take it.
func (x *exchange) deliver(msg []byte, isAnswer bool) bool {
	x.mu.Lock()
	defer x.mu.Unlock()

	if x.gone || x.left == 0 {
		return false
	}

	if isAnswer {
		x.left--
	} else if !x.stream {
		x.begin()
	}

	if x.stream {
		ok := x.body.push(msg)
		x.finish()

		return ok
	}

	x.early = append(x.early, msg)
	x.finish()

	return true
}

// cancel takes note that the client doesn't want an answer any more.
func (x *exchange) cancel() {
	x.mu.Lock()
	defer x.mu.Unlock()

	if x.left > 0 {
		x.left--
		x.finish()
	}
}

// begin makes it an event stream. The caller holds the lock.
func (x *exchange) begin() {
	x.stream = true

	for _, msg := range x.early {
		x.body.push(msg)
	}

	x.early = nil
	x.decide()
}

// finish ends it once nothing is left to come. The caller holds the lock.
func (x *exchange) finish() {
	if x.left > 0 {
		return
	}

	if !x.stream && !x.json && len(x.early) > 0 {
		x.begin()
	}

	x.body.end(io.EOF)
	x.decide()
}

func (x *exchange) decide() {
	if !x.decided {
		x.decided = true
		close(x.settled)
	}
}

// fail ends it without the answers that are left.
func (x *exchange) fail(err error) {
	x.mu.Lock()
	defer x.mu.Unlock()

	if x.left == 0 {
		return
	}

	x.left = 0
	if !x.stream {
		x.err = err
	}

	x.body.end(io.ErrUnexpectedEOF)
	x.decide()
}

// hangUp ends it without the answers that are left, in an orderly way.
func (x *exchange) hangUp() {
	x.body.end(io.EOF)
	x.fail(errBroken)
}

// leave takes note that the client is gone.
func (x *exchange) leave() {
	x.mu.Lock()
	early := !x.gone && x.left > 0
	x.gone = true
	x.mu.Unlock()

	if early && x.onLeave != nil {
		x.onLeave()
	}
}

func (x *exchange) isGone() bool {
	x.mu.Lock()
	defer x.mu.Unlock()

	return x.gone
}

// takesEvents reports whether the client would get a message that isn't an answer.
func (x *exchange) takesEvents() bool {
	x.mu.Lock()
	defer x.mu.Unlock()

	return x.events && !x.gone && x.left > 0
}

// response waits for the HTTP response.
func (x *exchange) response(req *http.Request, batch bool) (*http.Response, error) {
	ctx := req.Context()

	select {
	case <-x.settled:
	case <-ctx.Done():
		x.leave()
		return nil, ctx.Err() //nolint:wrapcheck // net/http does the same
	}

	x.mu.Lock()
	defer x.mu.Unlock()

	switch {
	case x.err != nil:
		return nil, x.err
	case x.stream:
		return eventStream(req, x.body), nil
	case len(x.early) == 0: // all were cancelled
		return empty(req, http.StatusAccepted), nil
	case batch:
		return jsonBody(req, http.StatusOK, joinBatch(x.early)), nil
	case x.modern:
		return jsonBody(req, statusOf(x.early[0]), x.early[0]), nil
	default:
		return jsonBody(req, http.StatusOK, x.early[0]), nil
	}
}

func joinBatch(messages [][]byte) []byte {
	all := []byte{'['}

	for i, msg := range messages {
		if i > 0 {
			all = append(all, ',')
		}

		all = append(all, msg...)
	}

	return append(all, ']')
}
