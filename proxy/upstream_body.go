package proxy

import (
	"context"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
)

// poolBody is the body of an answer. Its end, or Close, decides what becomes of the
// connection. Close may be called while another goroutine reads.
type poolBody struct {
	body io.Reader // of net/http: its Close would read to the end
	c    *poolConn
	ctx  context.Context //nolint:containedctx // of the request, whose end ends the body
	stop func() bool     // stops waiting for the end of ctx; false when that has come
	last bool            // the connection serves no further request

	over atomic.Bool
	err  error // of all reads from now on
}

// Read implements io.Reader. After the end of the request's context the error is
// the context's.
func (b *poolBody) Read(p []byte) (int, error) {
	switch {
	case b.err != nil:
		return 0, b.err
	case b.over.Load():
		return 0, http.ErrBodyReadAfterClose
	}

	n, err := b.body.Read(p)
	if err != nil {
		whole := errors.Is(err, io.EOF)
		b.finish(whole)

		if !whole && b.ctx.Err() != nil {
			err = b.ctx.Err()
		}

		b.err = err
	}

	return n, err //nolint:wrapcheck // io.EOF must stay what it is
}

// ahead reports whether a part of the body has been read from the connection.
func (b *poolBody) ahead() bool { return b.c.r.Buffered() > 0 }

// Close implements io.Closer. It doesn't read what is left.
func (b *poolBody) Close() error {
	b.finish(false)

	return nil
}

// finish gives the connection back, if the body was read to its end and nothing
// else is against it.
func (b *poolBody) finish(whole bool) {
	if b.over.Swap(true) {
		return
	}

	// If the context has ended, its end may still hit the connection.
	if b.stop() && whole && !b.last && b.c.reusable() {
		b.c.pool.put(b.c)
	} else {
		b.c.close()
	}
}
