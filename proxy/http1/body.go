package http1

import (
	"errors"
	"io"
	"net/http"
	"time"
)

// body is the body of a request.
type body struct {
	c      *conn
	left   int64
	until  time.Time // deadline of reads
	closed bool
	err    error
}

// ahead reports whether all that is left of the body has been read ahead.
func (b *body) ahead() bool { return b.left == 0 || b.left <= int64(len(b.c.ahead())) }

// Read implements [io.Reader].
func (b *body) Read(p []byte) (int, error) {
	switch {
	case b.closed:
		return 0, http.ErrBodyReadAfterClose
	case b.err != nil:
		return 0, b.err
	case b.left == 0:
		return 0, io.EOF
	case len(p) == 0:
		return 0, nil
	}

	p = p[:min(int64(len(p)), b.left)]

	n := copy(p, b.c.ahead())
	b.c.next += n

	if n == 0 {
		b.c.readUntil(b.until)

		n, b.err = b.c.conn.Read(p)
		if errors.Is(b.err, io.EOF) {
			b.err = io.ErrUnexpectedEOF
		}
	}

	if b.left -= int64(n); b.left == 0 {
		b.c.watch.bodyOver()
	}

	return n, b.err
}

// Close implements [io.Closer].
func (b *body) Close() error {
	b.closed = true

	return nil
}
