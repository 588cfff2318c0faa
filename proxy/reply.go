package proxy

import (
	"net/http"
	"strconv"
	"time"
)

const (
	typeEventStream = "text/event-stream"
	typeJSON        = "application/json"
)

// reply writes the answer to one request. It begins as nothing; it becomes an
// event stream when the backend's answer is one, or when the request was held for
// so long that the client needs a sign of life. It is used by one goroutine at a
// time.
type reply struct {
	w      http.ResponseWriter
	rc     http.ResponseController
	first  func() // called before the first byte
	begun  bool   // the header is out
	stream bool   // as an event stream
	buf    []byte

	commented time.Time // when the last comment was written
}

// begin makes it the answer that w writes.
func (o *reply) begin(w http.ResponseWriter, first func()) {
	o.w, o.rc, o.first = w, *http.NewResponseController(w), first
}

// header sends the header, once.
func (o *reply) header(status int) {
	if o.begun {
		return
	}

	o.begun = true
	o.first()
	o.w.WriteHeader(status)
}

// beginStream makes the answer an event stream and flushes its header.
func (o *reply) beginStream() error {
	if o.begun {
		return nil
	}

	o.streams()

	return o.rc.Flush()
}

// streams makes the answer an event stream.
func (o *reply) streams() {
	if !o.begun {
		streamHeader(o.w.Header())
		o.stream = true
		o.header(http.StatusOK)
	}
}

// streamHeader sets what every event stream of the sidecar says of itself.
func streamHeader(h http.Header) {
	values := [...]string{typeEventStream, "no-cache, no-transform", "no"}
	h["Content-Type"], h["Cache-Control"], h["X-Accel-Buffering"] = values[0:1:1], values[1:2:2], values[2:3:3]

	delete(h, "Content-Length")
}

// raw writes bytes of an event stream and flushes them.
func (o *reply) raw(b []byte) error {
	if err := o.last(b); err != nil {
		return err
	}

	return o.rc.Flush()
}

// last writes bytes of an event stream of which nothing follows but the end, which
// flushes them.
func (o *reply) last(b []byte) error {
	o.streams()

	_, err := o.w.Write(b)

	return err
}

// comment writes a comment line, which clients ignore.
func (o *reply) comment(text string) error {
	o.buf = appendComment(o.buf[:0], text)
	o.commented = time.Now()

	return o.raw(o.buf)
}

// message writes a whole JSON-RPC message as the answer: as an event when a stream
// has begun, else as a JSON body.
func (o *reply) message(status int, body []byte) error {
	if o.stream {
		o.buf = appendEvent(o.buf[:0], "message", "", body)

		return o.raw(o.buf)
	}

	h := o.w.Header()
	if h.Get("Content-Type") == "" {
		h.Set("Content-Type", typeJSON)
	}

	setLength(h, int64(len(body)))
	o.header(status)

	_, err := o.w.Write(body)

	return err
}

// setLength tells how long the body of an answer is.
func setLength(h http.Header, n int64) {
	h["Content-Length"] = []string{strconv.FormatInt(n, 10)}
}

// empty answers without a body, such as 202. A stream that has begun just ends.
func (o *reply) empty(status int) {
	if !o.begun {
		o.w.Header().Del("Content-Type")
		o.header(status)
	}
}

// abort breaks the connection, so that the client doesn't take what it has got
// for a whole answer.
func (o *reply) abort() { panic(http.ErrAbortHandler) }
