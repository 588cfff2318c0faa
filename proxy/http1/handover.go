package http1

import (
	"crypto/tls"
	"net"
	"sync"
)

// handOver is the listener by which net/http gets connections.
type handOver struct {
	conns chan net.Conn
	addr  net.Addr
	once  sync.Once
	over  chan struct{}
}

func newHandOver() *handOver {
	return &handOver{conns: make(chan net.Conn), over: make(chan struct{})}
}

// give hands a connection over, or closes it when nobody takes it any more.
func (h *handOver) give(c net.Conn) {
	select {
	case h.conns <- c:
	case <-h.over:
		_ = c.Close()
	}
}

// Accept implements [net.Listener].
func (h *handOver) Accept() (net.Conn, error) {
	select {
	case c := <-h.conns:
		return c, nil
	case <-h.over:
		return nil, net.ErrClosed
	}
}

// Close implements [net.Listener].
func (h *handOver) Close() error {
	h.once.Do(func() { close(h.over) })

	return nil
}

// Addr implements [net.Listener].
func (h *handOver) Addr() net.Addr { return h.addr }

// begun is a connection of which something was read already.
type begun struct {
	net.Conn

	read []byte
}

// begunTLS is one with TLS, which net/http tells to handlers.
type begunTLS struct {
	*begun

	state *tls.ConnectionState
}

// ConnectionState is asked by net/http.
func (b begunTLS) ConnectionState() tls.ConnectionState { return *b.state }

// Read implements [net.Conn].
func (b *begun) Read(p []byte) (int, error) {
	if len(b.read) == 0 {
		return b.Conn.Read(p) //nolint:wrapcheck // the server compares it
	}

	n := copy(p, b.read)
	if b.read = b.read[n:]; len(b.read) == 0 {
		b.read = nil
	}

	return n, nil
}
