package http1

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// joined is up to how much is put together for one write.
const joined = 32 << 10

// exchange is a request and its answer.
type exchange struct {
	req  *http.Request
	ctx  requestContext
	body body
	res  response
}

func newExchange(c *conn) *exchange {
	x := &exchange{ctx: requestContext{base: c.srv.base}}
	x.req = c.srv.request.WithContext(&x.ctx)
	x.req.RemoteAddr, x.req.TLS = c.remote, c.tls
	x.body = body{c: c}
	x.res = response{c: c, x: x, header: make(http.Header), length: -1}

	return x
}

// response writes an answer. Like that of net/http, it is for one goroutine at a
// time.
type response struct {
	c      *conn
	x      *exchange
	header http.Header

	status   int
	length   int64 // of the body, -1 while that isn't known
	given    int64 // of it
	out      *[]byte
	unframed *[]byte // a body whose end, and so its length, may come before its beginning must be sent
	bodyless bool
	chunked  bool
	last     bool // the connection closes afterwards
	limited  bool // in time
	err      error
}

// Header implements [http.ResponseWriter].
func (w *response) Header() http.Header { return w.header }

// WriteHeader implements [http.ResponseWriter]. Of 1xx it does nothing.
func (w *response) WriteHeader(status int) {
	if w.status != 0 || status < http.StatusOK {
		return
	}

	w.status = status
	w.bodyless = status == http.StatusNoContent || status == http.StatusNotModified
	w.last = w.x.req.Close || w.c.srv.closing.Load() || !w.x.body.ahead()
	w.out = w.c.srv.buffers.Get()

	b := appendStatus(*w.out, status)

	for name, values := range w.header {
		switch name {
		case "Connection":
			w.last = w.last || closes(values)
			continue
		case "Content-Length":
			if len(values) != 1 || !IsLength(values[0]) || w.bodyless {
				continue
			}

			w.length, _ = strconv.ParseInt(values[0], 10, 64)
		case "Transfer-Encoding", "Trailer":
			continue
		}

		for _, v := range values {
			b = appendField(b, name, v)
		}
	}

	if _, ok := w.header["Date"]; !ok {
		b = appendField(b, "Date", w.c.srv.date.at(time.Now()))
	}

	if w.last {
		b = appendField(b, "Connection", "close")
	}

	if w.length >= 0 || w.bodyless {
		b = append(b, "\r\n"...)
	} else {
		w.unframed = w.c.srv.buffers.Get()
	}

	*w.out = b
}

func closes(values []string) bool {
	for _, v := range values {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "close") {
				return true
			}
		}
	}

	return false
}

func appendStatus(b []byte, status int) []byte {
	b = strconv.AppendInt(append(b, "HTTP/1.1 "...), int64(status), 10)
	b = append(b, ' ')

	if text := http.StatusText(status); text != "" {
		return append(append(b, text...), "\r\n"...)
	}

	return append(strconv.AppendInt(append(b, "status code "...), int64(status), 10), "\r\n"...)
}

// appendField appends a field line, unless that would be something else.
func appendField(b []byte, name, value string) []byte {
	if !IsToken(name) || !IsValue(value) {
		return b
	}

	return append(append(append(append(b, name...), ": "...), value...), "\r\n"...)
}

// Write implements [http.ResponseWriter].
func (w *response) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)

	w.given += int64(len(p))

	switch {
	case w.err != nil:
		return 0, w.err
	case w.bodyless:
		return 0, http.ErrBodyNotAllowed
	case w.length >= 0 && w.given > w.length:
		return 0, http.ErrContentLength
	case w.unframed != nil && len(*w.unframed)+len(p) <= bufferSize:
		*w.unframed = append(*w.unframed, p...)
		return len(p), nil
	}

	w.frame()
	w.piece(p)

	return len(p), w.err
}

// frame makes a body whose length isn't known one of chunks.
func (w *response) frame() {
	if w.unframed == nil {
		return
	}

	w.chunked = true
	w.put([]byte("Transfer-Encoding: chunked\r\n\r\n"))

	b := w.unframed
	w.unframed = nil
	w.piece(*b)
	w.c.srv.buffers.Put(b)
}

// piece writes a piece of the body.
func (w *response) piece(p []byte) {
	if len(p) == 0 { // it would be the last chunk
		return
	}

	if !w.chunked {
		w.put(p)
		return
	}

	var size [18]byte

	w.put(append(strconv.AppendInt(size[:0], int64(len(p)), 16), "\r\n"...))
	w.put(p)
	w.put([]byte("\r\n"))
}

// put writes p, together with what else there is, when enough has come together.
func (w *response) put(p []byte) {
	if w.out == nil {
		w.out = w.c.srv.buffers.Get()
	}

	if len(*w.out)+len(p) <= joined {
		*w.out = append(*w.out, p...)
		return
	}

	w.send()
	w.write(p)
}

// send writes what has come together.
func (w *response) send() {
	if w.out != nil {
		w.write(*w.out)
		w.c.srv.buffers.Put(w.out)
		w.out = nil
	}
}

func (w *response) write(p []byte) {
	if w.err != nil || len(p) == 0 {
		return
	}

	if _, w.err = w.c.conn.Write(p); w.err != nil {
		w.x.ctx.end() // the client is gone
	}
}

// Flush implements [http.Flusher].
func (w *response) Flush() { _ = w.FlushError() }

// FlushError is Flush for [http.ResponseController].
func (w *response) FlushError() error {
	w.WriteHeader(http.StatusOK)
	w.frame()
	w.send()

	return w.err
}

// SetReadDeadline is for [http.ResponseController]. It holds for the body of the
// request.
func (w *response) SetReadDeadline(t time.Time) error {
	w.x.body.until = t

	return nil
}

// SetWriteDeadline is for [http.ResponseController]. It holds until the end of the
// request.
func (w *response) SetWriteDeadline(t time.Time) error {
	w.limited = !t.IsZero()

	return w.c.conn.SetWriteDeadline(t) //nolint:wrapcheck // it says what it is
}

// finish writes what is left of the answer, and reports whether the connection can
// be used for another.
func (w *response) finish() bool {
	w.WriteHeader(http.StatusOK)

	switch {
	case w.unframed != nil:
		b := w.unframed
		w.unframed = nil
		*w.out = appendField(*w.out, "Content-Length", strconv.Itoa(len(*b)))
		w.put([]byte("\r\n"))
		w.put(*b)
		w.c.srv.buffers.Put(b)
	case w.chunked:
		w.put([]byte("0\r\n\r\n"))
	case !w.bodyless && w.given < w.length:
		w.last = true // the client must see that there is a piece missing
	}

	w.send()

	if w.limited {
		_ = w.c.conn.SetWriteDeadline(time.Time{})
	}

	return !w.last && w.err == nil
}

// release gives the buffers back.
func (w *response) release() {
	for _, b := range []*[]byte{w.out, w.unframed} {
		if b != nil {
			w.c.srv.buffers.Put(b)
		}
	}

	w.out, w.unframed = nil, nil
}
