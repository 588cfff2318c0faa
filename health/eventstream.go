package health

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// eventReader reads an event stream, as the HTML standard defines it: lines end with LF, CRLF or CR, and an event ends with
// an empty line. Only the data is of interest here.
type eventReader struct {
	r      *bufio.Reader
	limit  int  // bytes of the data of an event
	first  bool // nothing read yet: there may be a byte order mark
	skipLF bool // the last line ended with CR
}

func newEventReader(r io.Reader, limit int) *eventReader {
	return &eventReader{r: bufio.NewReader(r), limit: limit, first: true}
}

// next returns the data of the next event that has some. An event that the end of the stream cuts off is none.
func (e *eventReader) next() ([]byte, error) {
	var data []byte
	has := false
	for {
		line, err := e.line()
		if err != nil {
			return nil, err
		}
		if len(line) == 0 {
			if has {
				return data, nil
			}
			continue
		}
		field, value, _ := bytes.Cut(line, []byte{':'})
		if string(field) != "data" {
			continue
		}
		if has {
			data = append(data, '\n')
		}
		has = true
		data = append(data, bytes.TrimPrefix(value, []byte{' '})...)
		if len(data) > e.limit {
			return nil, errTooLarge
		}
	}
}

// line reads one line, without its end.
func (e *eventReader) line() ([]byte, error) {
	var line []byte
	for {
		c, err := e.r.ReadByte()
		if err != nil {
			if errors.Is(err, io.EOF) && len(line) > 0 {
				return nil, io.ErrUnexpectedEOF
			}
			return nil, err
		}
		// The LF of a CRLF may come much later than the CR, so the line must not wait for it.
		skip := e.skipLF && c == '\n'
		e.skipLF = c == '\r'
		switch {
		case skip:
		case c == '\n' || c == '\r':
			if e.first {
				e.first = false
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			return line, nil
		case len(line) > e.limit:
			return nil, errTooLarge
		default:
			line = append(line, c)
		}
	}
}
