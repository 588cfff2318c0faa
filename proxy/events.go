package proxy

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"
	"time"
)

// maxEvent is how large a single event may be: 16 MiB of data, and room for the
// field names around it.
const maxEvent = 16<<20 + 64<<10

// The read buffer of a stream starts small, since most streams are silent, and
// is given back after a large event.
const (
	minEventBuffer  = 1 << 10
	keepEventBuffer = 64 << 10
)

var errEventTooLarge = errors.New("reading event stream: an event is larger than allowed")

// event is one block of an event stream. Its slices are valid until the next
// call of Next.
type event struct {
	// raw are the bytes to forward, up to and including the line end that
	// closes the event. Writing the raws of all events one after the other
	// reproduces the stream, but for a leading byte order mark, which must not
	// end up in the middle of a stream that the sidecar has already written to.
	raw []byte

	typ      string // "message" unless the stream says otherwise
	id       string
	hasID    bool // an empty id is one too: it resets the client's cursor
	retry    time.Duration
	hasRetry bool
	data     []byte // lines joined by LF
	hasData  bool   // a data field was there, possibly an empty one

	fields bool // some field (not only comments and blank lines) was there
}

// with returns the bytes of the event with other data.
func (e *event) with(data []byte) []byte {
	if bytes.Count(e.raw, e.data) == 1 { // on one line, as nearly always
		return bytes.Replace(e.raw, e.data, data, 1)
	}

	return appendEvent(nil, e.typ, e.id, data)
}

// isComment reports whether the block holds nothing but comments and blank
// lines.
func (e *event) isComment() bool { return !e.fields }

// eventReader splits a foreign event stream (HTML Living Standard, "Server-sent
// events") into complete events. An event that isn't closed by a blank line is
// never returned. Comments between events are returned as soon as they are
// complete, so that keep-alives pass at once.
//
// It isn't safe for concurrent use.
type eventReader struct {
	r   io.Reader
	max int
	buf []byte

	start int // of the block that is being collected
	loose int // up to here it has nothing but comments
	line  int // start of the line that is being collected
	scan  int // up to here that line has no end
	end   int // of what has been read

	fields bool // the block has a line that is no comment
	cr     bool // the line before ended in CR at the end of what had been read: a LF that follows belongs to it
	begun  bool // past the byte order mark
	err    error
}

// newEventReader returns a reader of r that refuses events of more than limit
// bytes.
func newEventReader(r io.Reader, limit int) *eventReader {
	return &eventReader{r: r, max: limit}
}

// Next returns the next complete block. At the end of the stream it returns
// io.EOF, or io.ErrUnexpectedEOF when an event was left incomplete; errors of
// the underlying reader come as they are, after everything that was complete.
func (r *eventReader) Next() (event, error) {
	for {
		if block, ok := r.block(); ok {
			if len(block) > r.max {
				r.err = errEventTooLarge
				return event{}, r.err
			}
			return parseEvent(block), nil
		}
		if r.err != nil {
			if errors.Is(r.err, io.EOF) && r.start < r.end {
				return event{}, io.ErrUnexpectedEOF
			}
			return event{}, r.err
		}
		r.fill()
	}
}

// drained reports whether everything that there will ever be has been returned.
func (r *eventReader) drained() bool { return r.err != nil && r.start == r.end }

// block cuts a complete block out of the buffer.
func (r *eventReader) block() ([]byte, bool) {
	for r.begin() {
		at := lineEnd(r.buf[r.scan:r.end])
		if at < 0 {
			r.scan = r.end
			break
		}
		at += r.scan
		next := at + 1
		if r.buf[at] == '\r' {
			if next == r.end {
				r.cr = true
			} else if r.buf[next] == '\n' {
				next++
			}
		}
		blank, comment := at == r.line, r.buf[r.line] == ':'
		r.line, r.scan = next, next
		r.fields = r.fields || !comment && !blank
		if !r.fields {
			r.loose = next
		}
		if blank {
			r.fields = false
			return r.cut(next), true
		}
	}
	// There is nothing more to be had without waiting. Complete comment lines,
	// and the LF of a CR LF that came in two reads, needn't wait for the event
	// that follows.
	if r.loose > r.start {
		return r.cut(r.loose), true
	}
	return nil, false
}

// begin moves past what may stand before the first byte of a line, and reports
// whether there is anything to look at.
func (r *eventReader) begin() bool {
	if !r.begun {
		const bom = "\xef\xbb\xbf"
		head := r.buf[r.start:r.end]
		if len(head) < len(bom) && string(head) == bom[:len(head)] && r.err == nil {
			return false
		}
		r.begun = true
		if bytes.HasPrefix(head, []byte(bom)) {
			r.start += len(bom)
			r.line, r.scan, r.loose = r.start, r.start, r.start
		}
	}
	if r.cr && r.line < r.end {
		r.cr = false
		if r.buf[r.line] == '\n' {
			r.line++
			r.scan = r.line
			if !r.fields {
				r.loose = r.line
			}
		}
	}
	return r.line < r.end
}

// cut takes the block that ends at end.
func (r *eventReader) cut(end int) []byte {
	block := r.buf[r.start:end:end]
	r.start, r.loose = end, end
	return block
}

// fill reads once, making room first.
func (r *eventReader) fill() {
	switch {
	case r.end-r.start >= r.max:
		r.err = errEventTooLarge
		return
	case r.start == r.end && cap(r.buf) > keepEventBuffer:
		r.move(make([]byte, minEventBuffer))
	case r.end < len(r.buf):
	case r.start > len(r.buf)/2:
		r.move(r.buf)
	default:
		r.move(make([]byte, min(max(2*len(r.buf), minEventBuffer), r.max+minEventBuffer)))
	}
	for range 100 {
		n, err := r.r.Read(r.buf[r.end:])
		r.end += n
		r.err = err
		if n > 0 || err != nil {
			return
		}
	}
	r.err = io.ErrNoProgress
}

// move brings what is unread to the front of buf.
func (r *eventReader) move(buf []byte) {
	n := copy(buf, r.buf[r.start:r.end])
	r.loose -= r.start
	r.line -= r.start
	r.scan -= r.start
	r.start, r.end, r.buf = 0, n, buf
}

// lineEnd returns the index of the first CR or LF, -1 when there is none. It
// looks through windows, so that a stream of CR-only lines doesn't search for LF
// to the end of a large buffer again and again.
func lineEnd(b []byte) int {
	const window = 512
	for at := 0; at < len(b); at += window {
		w := b[at:min(at+window, len(b))]
		lf := bytes.IndexByte(w, '\n')
		if lf >= 0 {
			w = w[:lf]
		}
		if cr := bytes.IndexByte(w, '\r'); cr >= 0 {
			return at + cr
		}
		if lf >= 0 {
			return at + lf
		}
	}
	return -1
}

// parseEvent reads the fields of a complete block.
func parseEvent(block []byte) event {
	e := event{raw: block, typ: "message"}
	joined := false
	for rest := block; len(rest) > 0; {
		at := lineEnd(rest)
		line := rest[:at]
		if rest[at] == '\r' && at+1 < len(rest) && rest[at+1] == '\n' {
			at++
		}
		rest = rest[at+1:]
		if len(line) == 0 || line[0] == ':' {
			continue
		}
		e.fields = true
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			switch {
			case !e.hasData:
				e.data, e.hasData = value, true
			case !joined:
				joined = true
				e.data = slices.Concat(e.data, []byte("\n"), value)
			default:
				e.data = append(append(e.data, '\n'), value...)
			}
		case "event":
			e.typ = eventType(value)
		case "id":
			if bytes.IndexByte(value, 0) < 0 {
				e.id, e.hasID = string(value), true
			}
		case "retry":
			if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
				e.retry, e.hasRetry = time.Duration(ms)*time.Millisecond, true
			}
		}
	}
	return e
}

// eventType doesn't allocate for the types that MCP uses.
func eventType(value []byte) string {
	switch string(value) {
	case "", "message":
		return "message"
	case "endpoint":
		return "endpoint"
	}
	return string(value)
}

// appendEvent appends one event to dst. An empty type or id writes no such line:
// without an id line the client's resume cursor stays what it is. Neither may
// contain a line end; data may, and is then split into several lines.
func appendEvent(dst []byte, typ, id string, data []byte) []byte {
	if typ != "" {
		dst = append(append(append(dst, "event: "...), typ...), '\n')
	}
	if id != "" {
		dst = append(append(append(dst, "id: "...), id...), '\n')
	}
	for {
		at := lineEnd(data)
		if at < 0 {
			break
		}
		dst = append(append(append(dst, "data: "...), data[:at]...), '\n')
		if data[at] == '\r' && at+1 < len(data) && data[at+1] == '\n' {
			at++
		}
		data = data[at+1:]
	}
	dst = append(append(append(dst, "data: "...), data...), '\n')
	return append(dst, '\n')
}

// appendComment appends a comment line, which clients ignore, and the blank line
// that makes every parser let go of it. The text must be one line.
func appendComment(dst []byte, text string) []byte {
	return append(append(append(dst, ": "...), text...), "\n\n"...)
}
