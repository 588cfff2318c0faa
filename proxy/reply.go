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
	rc     *http.ResponseController
	first  func() // called before the first byte
	begun  bool   // the header is out
	stream bool   // as an event stream
	buf    []byte

	commented time.Time // when the last comment was written
}

func newReply(w http.ResponseWriter, first func()) *reply {
	return &reply{w: w, rc: http.NewResponseController(w), first: first}
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

	streamHeader(o.w.Header())
	o.stream = true
	o.header(http.StatusOK)

	return o.rc.Flush()
}

// streamHeader sets what every event stream of the sidecar says of itself.
func streamHeader(h http.Header) {
	h.Set("Content-Type", typeEventStream)
	h.Set("Cache-Control", "no-cache, no-transform")
	h.Set("X-Accel-Buffering", "no")
	h.Del("Content-Length")
}

// raw writes bytes of an event stream and flushes them.
func (o *reply) raw(b []byte) error {
	if err := o.beginStream(); err != nil {
		return err
	}

	if _, err := o.w.Write(b); err != nil {
		return err
	}

	return o.rc.Flush()
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

	h.Set("Content-Length", strconv.Itoa(len(body)))
	o.header(status)

	_, err := o.w.Write(body)

	return err
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
