package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/proxy/http1"
)

const (
	// inlineWrite is what is written before anything is read. It fits into what
	// the other side's kernel takes on an idle connection, so that a backend that
	// answers without reading doesn't block the write. More than that is written
	// while the answer is awaited.
	inlineWrite = 32 << 10
	// readBuffer holds the header of an answer and a small body. Each listening
	// session has one, and what is larger is read past it.
	readBuffer = 2 << 10
	// afterFailedWrite is how long an answer may take after a write failed:
	// backends refuse a request without reading it, and close.
	afterFailedWrite = time.Second
)

var (
	errHeaderTooLarge = fmt.Errorf("the header of the backend's answer is larger than %d bytes", maxHeader)
	errSwitched       = errors.New("the backend switched to another protocol without being asked")
)

// poolConn is one connection of a pool. One request at a time uses it.
type poolConn struct {
	pool   *pool
	origin origin
	conn   net.Conn
	pulse  *pulse
	r      *bufio.Reader
	left   int64     // bytes that may still be read: those of a header are bounded
	used   bool      // it has served a request
	since  time.Time // when it became idle
	aside  *aside    // nil without a request that is written aside
	over   func()    // interrupt
	fields http1.Fields
}

// aside is a request that is written while the answer is read.
type aside struct {
	done chan struct{} // closed at the end; what follows counts only then
	n    int64         // bytes written
	err  error
}

func newPoolConn(p *pool, o origin, conn net.Conn) *poolConn {
	c := &poolConn{pool: p, origin: o, conn: conn, pulse: newPulse(conn)}
	c.r = bufio.NewReaderSize(c, readBuffer)
	c.over = c.interrupt

	return c
}

// interrupt ends what is being written or read, now and from now on.
func (c *poolConn) interrupt() { _ = c.conn.SetDeadline(time.Unix(1, 0)) }

// close closes the connection, and waits for what is still being written to it.
func (c *poolConn) close() {
	_ = c.conn.Close()

	if c.aside != nil {
		<-c.aside.done
	}
}

// alive reports whether an idle connection may be used: it hasn't been idle for too
// long, and the backend has neither closed it nor sent anything, which nothing
// asked it for.
func (c *poolConn) alive() bool {
	return time.Since(c.since) < idleTimeout && c.pulse.alive()
}

// Read implements io.Reader for c.r.
func (c *poolConn) Read(b []byte) (int, error) {
	if c.left <= 0 {
		return 0, errHeaderTooLarge
	}

	n, err := c.conn.Read(b)
	c.left -= int64(n)

	return n, err //nolint:wrapcheck // io.EOF must stay what it is
}

// exchange sends a request and reads the header of the answer. After an error the
// connection is closed.
func (c *poolConn) exchange(req *http.Request, head *[]byte, body []byte, a *pooled, t *Trace) (*http.Response, error) {
	var failed error

	if len(*head)+len(body) <= inlineWrite {
		var n int

		*head = append(*head, body...)
		n, failed = c.conn.Write(*head)
		c.pool.heads.Put(head)

		t.Wrote, t.WroteRequest = n > 0, failed == nil
	} else {
		c.writeAside(*head, body)
	}

	if failed != nil {
		_ = c.conn.SetReadDeadline(time.Now().Add(afterFailedWrite))
	}

	var (
		resp *http.Response
		err  error
	)

	if failed == nil || t.Wrote {
		resp, err = c.answer(req, a, t)
	}

	if resp == nil {
		c.close()
	}

	if w := c.aside; w != nil && w.over() {
		t.Wrote, t.WroteRequest = w.n > 0, w.err == nil
		failed = w.err
	} else if w != nil {
		t.Wrote = true
	}

	switch {
	case resp != nil:
		// Who answers before it has the whole request may go on to read it, and
		// then close, or take for a part of it what comes next.
		resp.Close = resp.Close || !t.WroteRequest
		return resp, nil
	case failed != nil:
		return nil, fmt.Errorf("writing a request: %w", failed)
	default:
		return nil, err
	}
}

// writeAside writes a request on a goroutine that ends before the connection is
// used again, or with it.
func (c *poolConn) writeAside(head, body []byte) {
	a := &aside{done: make(chan struct{})}
	c.aside = a
	buffers := net.Buffers{head, body}

	go func() {
		defer close(a.done)

		if a.n, a.err = buffers.WriteTo(c.conn); a.err != nil {
			_ = c.conn.SetReadDeadline(time.Now().Add(afterFailedWrite))
		}
	}()
}

func (a *aside) over() bool {
	select {
	case <-a.done:
		return true
	default:
		return false
	}
}

// answer reads the header of the final answer.
func (c *poolConn) answer(req *http.Request, a *pooled, t *Trace) (*http.Response, error) {
	// What is read ahead of the body counts too.
	c.left = maxHeader + int64(c.r.Size())

	if _, err := c.r.Peek(1); err != nil {
		return nil, fmt.Errorf("waiting for an answer: %w", unexpected(err))
	}

	t.Answered = true

	if resp := c.ordinary(req, a); resp != nil {
		c.left = math.MaxInt64
		return resp, nil
	}

	for {
		resp, err := http.ReadResponse(c.r, req)

		switch {
		case c.left <= 0: // whatever net/http makes of a line that is cut off
			return nil, errHeaderTooLarge
		case err != nil:
			return nil, fmt.Errorf("reading an answer: %w", unexpected(err))
		case resp.StatusCode == http.StatusSwitchingProtocols:
			return nil, errSwitched
		case resp.StatusCode >= http.StatusOK:
			c.left = math.MaxInt64
			return resp, nil
		}
	}
}

// unexpected keeps the end of a connection from being taken for the end of a body.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}

	return err
}

// reusable reports whether the connection may serve another request after an
// answer that was read to its end.
func (c *poolConn) reusable() bool {
	if c.r.Buffered() > 0 {
		return false
	}

	if a := c.aside; a != nil {
		if !a.over() || a.err != nil {
			return false
		}

		c.aside = nil
	}

	c.used = true

	return true
}
