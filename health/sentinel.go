package health

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// shortLived is the idle time below which a connection was never kept open in the first place.
	shortLived = 50 * time.Millisecond
	// shortLimit is after how many of those the backend is taken for one that keeps no connection.
	shortLimit = 3
)

var errNotKept = errors.New("the backend keeps no connection open")

// sentinel keeps one idle connection to the backend. The kernel closes the connections of a process that ends, so the end of
// this one tells of the end within a millisecond, and as long as it serves, the process is the same.
//
// Many servers close idle connections after some seconds. That interval is learned, and an end that comes at it is only
// looked into by opening the connection again.
type sentinel struct {
	client *http.Client
	build  func(context.Context) (*http.Request, error) // a cheap request
	lost   func()                                       // the connection ended out of turn
	doubt  func()                                       // it could not be opened
	armed  chan struct{}                                // somebody answers, so stand guard

	wait time.Duration // for an answer

	mu    sync.Mutex
	conn  *guardedConn  // nil while there is none
	usual time.Duration // idle time after which the backend hangs up; 0 if unknown
	short int           // connections in a row that didn't last
}

func newSentinel(d Deps, cfg *Config, next func(http.RoundTripper) http.RoundTripper, build func(context.Context) (*http.Request, error), sig signals) *sentinel {
	dial := d.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	t := newTransport(d, cfg)
	t.MaxConnsPerHost, t.MaxIdleConnsPerHost = 1, 1
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &guardedConn{Conn: conn, opened: time.Now(), ended: make(chan struct{})}, nil
	}
	return &sentinel{
		client: &http.Client{Transport: next(t), CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		build:  build,
		lost:   sig.lost,
		doubt:  sig.ended,
		armed:  make(chan struct{}, 1),
		wait:   cfg.ProbeTimeout,
	}
}

// arm says that the backend answers. It never blocks.
func (s *sentinel) arm() {
	select {
	case s.armed <- struct{}{}:
	default:
	}
}

// disarm forgets answers of before: a connection opened now could be to another process, and then speak for the old one.
func (s *sentinel) disarm() {
	select {
	case <-s.armed:
	default:
	}
}

// renew forgets what was learned from the process of before.
func (s *sentinel) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.short = 0
}

// run stands guard until ctx ends.
func (s *sentinel) run(ctx context.Context) {
	defer s.client.CloseIdleConnections()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.armed:
			s.guard(ctx)
		}
	}
}

// guard opens the connection and watches it until it ends out of turn, or can't be opened.
func (s *sentinel) guard(ctx context.Context) {
	for again := false; ; again = true {
		s.mu.Lock()
		useless := s.short >= shortLimit
		s.mu.Unlock()
		if useless {
			return
		}
		conn, err := s.ask(ctx)
		switch {
		case err == nil:
		case errors.Is(err, errNotKept):
			s.giveUp()
			return
		case ctx.Err() != nil:
			return
		case again:
			s.disarm()
			s.lost() // it hung up at the usual time, but now it isn't there
			return
		default:
			s.failed(ctx) // it answered a moment ago
			return
		}
		s.hold(conn)
		select {
		case <-ctx.Done():
			return
		case <-conn.ended:
		}
		s.hold(nil)
		if !s.expected(conn.idle(), conn.clean.Load()) {
			s.disarm()
			s.lost()
			return
		}
	}
}

// failed asks for a look, and leaves time for what it finds.
func (s *sentinel) failed(ctx context.Context) {
	s.mu.Lock()
	s.short++
	s.mu.Unlock()
	s.doubt()
	t := time.NewTimer(shortLived)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

func (s *sentinel) giveUp() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.short = shortLimit
}

func (s *sentinel) hold(conn *guardedConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conn = conn
}

// expected reports whether a connection that was idle for so long ended as the backend always ends them, and learns.
func (s *sentinel) expected(idle time.Duration, clean bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if idle < shortLived {
		s.short++
		return false
	}
	s.short = 0
	usual := s.usual
	if clean {
		s.usual = idle
	}
	return clean && usual > 0 && (idle-usual).Abs() <= max(usual/20, shortLived)
}

// held reports whether a connection that was open at that time still serves: then the process is the one of that time.
func (s *sentinel) held(ctx context.Context, at time.Time) bool {
	s.mu.Lock()
	conn := s.conn
	s.mu.Unlock()
	if conn == nil || conn.isOver() || !conn.opened.Before(at) {
		return false
	}
	served, err := s.ask(ctx)
	return err == nil && served == conn
}

// ask sends one cheap request and returns the connection that served it. What the answer says doesn't matter.
func (s *sentinel) ask(ctx context.Context) (*guardedConn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.wait)
	defer cancel()
	x := &exchange{}
	req, err := s.build(withExchange(ctx, x))
	if err != nil {
		return nil, err
	}
	resp, err := s.client.Do(req)
	if err != nil {
		return nil, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	if err != nil {
		return nil, err
	}
	conn := unwrap(x.result().conn)
	if conn == nil || resp.Close {
		return nil, errNotKept
	}
	now := time.Now()
	conn.used.Store(&now)
	return conn, nil
}

// guardedConn tells when it ended, and how.
type guardedConn struct {
	net.Conn
	opened time.Time
	once   sync.Once
	ended  chan struct{}
	clean  atomic.Bool               // the other side closed it in an orderly way
	used   atomic.Pointer[time.Time] // when it last served
}

// Read implements [net.Conn]. The HTTP transport reads from an idle connection too, and so sees at once when it ends.
func (c *guardedConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if err != nil {
		c.clean.Store(errors.Is(err, io.EOF))
		c.end()
	}
	return n, err
}

// Close implements [net.Conn].
func (c *guardedConn) Close() error {
	defer c.end()
	return c.Conn.Close()
}

func (c *guardedConn) end() { c.once.Do(func() { close(c.ended) }) }

func (c *guardedConn) isOver() bool {
	select {
	case <-c.ended:
		return true
	default:
		return false
	}
}

func (c *guardedConn) idle() time.Duration { return time.Since(*c.used.Load()) }

// unwrap finds the guarded connection within one that may be encrypted.
func unwrap(conn net.Conn) *guardedConn {
	if t, ok := conn.(interface{ NetConn() net.Conn }); ok {
		conn = t.NetConn()
	}
	g, _ := conn.(*guardedConn)
	return g
}
