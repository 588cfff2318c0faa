package http1

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves connections, and gives those that it doesn't read itself to an
// [http.Server]. That one's Handler, ReadHeaderTimeout and IdleTimeout hold for both;
// its other settings are only for what it gets.
//
// To a handler both look alike, with these exceptions: an answer without a
// Content-Type gets none, a request can't be hijacked, and its context has none of
// the values of net/http.
type Server struct {
	std     *http.Server
	log     *slog.Logger
	others  *handOver
	buffers Buffers
	date    date
	request http.Request // what all requests begin as

	base  context.Context //nolint:containedctx // of all requests
	ended atomic.Bool     // base has

	mu       sync.Mutex
	listener net.Listener // nil before Serve
	conns    map[*conn]struct{}
	closing  atomic.Bool
}

// New returns a server in front of std, which must not be served otherwise. The
// contexts of all requests end with ctx.
func New(ctx context.Context, std *http.Server, log *slog.Logger) *Server {
	std.BaseContext = func(net.Listener) context.Context { return ctx }

	return &Server{std: std, log: log.With("component", "http1"), base: ctx, others: newHandOver(), conns: make(map[*conn]struct{})}
}

// Serve serves the connections that l accepts, and returns when that fails:
// with [http.ErrServerClosed] after Shutdown or Close. It is called once.
func (s *Server) Serve(l net.Listener) error {
	if !s.use(l) {
		return http.ErrServerClosed
	}

	s.others.addr = l.Addr()

	go func() { _ = s.std.Serve(s.others) }() // until Shutdown or Close ends it

	context.AfterFunc(s.base, s.endAll)

	for wait := time.Duration(0); ; {
		nc, err := l.Accept()

		switch ne, temporary := err.(interface{ Temporary() bool }); {
		case err == nil:
			wait = 0

			s.start(nc)
		case s.closing.Load():
			return http.ErrServerClosed
		case temporary && ne.Temporary(): // there are no descriptors left: others will close theirs
			wait = min(max(2*wait, 5*time.Millisecond), time.Second)
			s.log.Warn("accepting a connection failed", "err", err, "next_try_in", wait)

			select {
			case <-time.After(wait):
			case <-s.others.over:
			}
		default:
			return err //nolint:wrapcheck // as net/http does it
		}
	}
}

// Shutdown stops accepting, closes idle connections, and returns when all others
// have become idle and are closed too, or with ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	s.stopAccepting()

	others := make(chan error, 1)
	go func() { others <- s.std.Shutdown(ctx) }()

	const most = 100 * time.Millisecond

	for pause := time.Millisecond; !s.closeIdle(); pause = min(2*pause, most) {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}

	return <-others
}

// Close closes all connections at once.
func (s *Server) Close() error {
	s.stopAccepting()
	s.mu.Lock()

	for c := range s.conns {
		_ = c.conn.Close()
	}
	s.mu.Unlock()

	return s.std.Close() //nolint:wrapcheck // it says what it is
}

func (s *Server) use(l net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.listener = l

	return !s.closing.Load()
}

func (s *Server) stopAccepting() {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.closing.Store(true)

	if s.listener != nil {
		_ = s.listener.Close()
	}
}

// start serves a connection until it ends, or is somebody else's.
func (s *Server) start(nc net.Conn) {
	c := newConn(s, nc)

	s.mu.Lock()
	defer s.mu.Unlock()

	if s.closing.Load() { // nobody would close it
		_ = nc.Close()
		return
	}

	s.conns[c] = struct{}{}

	go c.serve()
}

func (s *Server) forget(c *conn) {
	s.mu.Lock()
	defer s.mu.Unlock()

	delete(s.conns, c)
}

// closeIdle closes the connections that carry no request, and reports whether there
// are no others.
func (s *Server) closeIdle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()

	for c := range s.conns {
		c.closeIdle()
	}

	return len(s.conns) == 0
}

// endAll ends the contexts of all requests.
func (s *Server) endAll() {
	s.ended.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()

	for c := range s.conns {
		if ctx := c.ctx.Load(); ctx != nil {
			ctx.end()
		}
	}
}

// date is the Date of answers, which is the same for a second.
type date struct{ last atomic.Pointer[stamp] }

type stamp struct {
	second int64
	text   string
}

func (d *date) at(now time.Time) string {
	second := now.Unix()

	last := d.last.Load()
	if last == nil || last.second != second {
		last = &stamp{second, now.UTC().Format(http.TimeFormat)}
		d.last.Store(last)
	}

	return last.text
}
