package stdio

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// lineReader splits what a process writes into lines of a bounded length. It isn't
// safe for concurrent use.
type lineReader struct {
	r     *bufio.Reader
	limit int
}

func newLineReader(r io.Reader, limit int) *lineReader {
	return &lineReader{r: bufio.NewReader(r), limit: limit}
}

// next returns the next line that isn't blank, without the white space around it.
// The line belongs to the caller. A last line without an end counts. The error is
// errTooLong, after which reading can't go on, or that of the reader.
func (l *lineReader) next() ([]byte, error) {
	for {
		line, err := l.whole()
		if line = bytes.TrimSpace(line); len(line) > 0 && !errors.Is(err, errTooLong) {
			return line, nil
		}

		if err != nil {
			return nil, err
		}
	}
}

// whole returns everything up to and including the next line feed, or up to an
// error.
func (l *lineReader) whole() ([]byte, error) {
	var line []byte

	for {
		part, err := l.r.ReadSlice('\n')
		if len(line)+len(part) > l.limit+len("\r\n") {
			return nil, errTooLong
		}

		line = append(line, part...)

		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, err //nolint:wrapcheck // io.EOF must stay what it is
		}
	}
}
