package health

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"
)

// connections counts the open connections of a server.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]bool
}

func (c *connections) hook(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		c.open = map[net.Conn]bool{}
	}
	switch state {
	case http.StateNew:
		c.open[conn] = true
	case http.StateClosed, http.StateHijacked:
		delete(c.open, conn)
	case http.StateActive, http.StateIdle:
	}
}

func (c *connections) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.open)
}

// A server that hangs up after some idle time is looked at closely the first times, and then only by opening the connection
// again. Its end is still seen at once.
func TestSentinelLearnsWhenTheServerHangsUp(t *testing.T) {
	s := newStub(t)
	srv := httptest.NewUnstartedServer(s)
	srv.Config.IdleTimeout = 200 * time.Millisecond
	srv.Start()
	defer srv.Close()
	cfg := quick(mustURL(t, srv.URL))
	cfg.ProbeInterval = time.Hour
	w := watch(t, cfg, Deps{})
	_, n := w.until(0, "settled", settledWith("a"))
	pings := s.got("POST ping")
	eventually(t, "several idle times", func() bool { return s.got("POST ping") >= pings+10 })
	if got := s.got("POST initialize"); got > 4 {
		t.Errorf("%d handshakes because of idle times", got)
	}
	if got := w.count(func(Event) bool { return true }); got != n {
		t.Errorf("told something of it:\n%s", describe(w.all()))
	}
	srv.Close()
	w.until(n, "away", inState(Away))
}

// A server that keeps no connection open is left alone.
func TestSentinelGivesUp(t *testing.T) {
	s := newStub(t)
	p := startProcess(t, "127.0.0.1:0", s)
	p.srv.SetKeepAlivesEnabled(false)
	cfg := quick(p.url(t))
	cfg.ProbeInterval = 20 * time.Millisecond
	w := watch(t, cfg, Deps{})
	w.until(0, "settled", settledWith("a"))
	eventually(t, "many probes", func() bool { return s.got("POST ping") > 20 })
	if got := s.got("POST initialize"); got != 1 {
		t.Errorf("%d handshakes", got)
	}
	if got := s.got("POST subscriptions/listen"); got != 1 {
		t.Errorf("asked %d times for a stream", got)
	}
	// Nothing but the refusal tells of the swap here.
	p.kill()
	_, n := w.until(0, "away", inState(Away))
	startProcess(t, p.addr, s)
	w.until(n, "a restart", func(e Event) bool { return e.Swap != nil && e.Swap.Cause == CauseRestart })
}

// The listener is away for a moment, the process isn't.
func TestSentinelSpeaksForTheProcess(t *testing.T) {
	s := newStub(t)
	var gate sync.Mutex
	closed := false
	dial := func(network, address string) (net.Conn, error) {
		gate.Lock()
		defer gate.Unlock()
		if closed {
			address = "127.0.0.1:1"
		}
		return net.Dial(network, address)
	}
	p := startProcess(t, "127.0.0.1:0", s)
	cfg := quick(p.url(t))
	w := watch(t, cfg, Deps{Dial: dialer(dial)})
	_, n := w.until(0, "settled", settledWith("a"))
	pr := w.probe()
	eventually(t, "a sentinel", func() bool {
		pr.sentinel.mu.Lock()
		defer pr.sentinel.mu.Unlock()
		return pr.sentinel.conn != nil
	})
	gate.Lock()
	closed = true
	gate.Unlock()
	pr.drop()
	w.Suspect("refused")
	_, n = w.until(n, "away", inState(Away))
	gate.Lock()
	closed = false
	gate.Unlock()
	w.until(n, "settled", settledWith("a"))
	if got := swaps(w.all()); got != nil {
		t.Errorf("swaps %v", got)
	}
}

func TestTLSAndTheEndOfConnections(t *testing.T) {
	var open connections
	srv := httptest.NewUnstartedServer(newStub(t))
	srv.Config.ConnState = open.hook
	srv.StartTLS()
	defer srv.Close()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	cfg := quick(mustURL(t, srv.URL))
	nothing := func() {}
	lost := make(chan struct{}, 1)
	p, err := newProbe(&cfg, Deps{}, NewMetrics(nil), nil, signals{func() { lost <- struct{}{} }, nothing, nothing}, true)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []*http.Client{p.client, p.sentinel.client} {
		outer, _ := c.Transport.(*wire)
		inner, _ := outer.next.(*http.Transport)
		inner.TLSClientConfig = &tls.Config{RootCAs: pool}
	}
	conn, err := func() (*guardedConn, error) {
		if _, err := p.connect(t.Context(), false); err != nil {
			return nil, err
		}
		return p.sentinel.ask(t.Context())
	}()
	if err != nil {
		t.Fatal(err)
	}
	p.sentinel.hold(conn)
	if !p.sentinel.held(t.Context(), time.Now()) {
		t.Error("the connection doesn't serve")
	}
	if p.sentinel.held(t.Context(), conn.opened) {
		t.Error("the connection speaks for a time before its own")
	}
	p.sentinel.client.CloseIdleConnections()
	p.close(t.Context())
	eventually(t, "no connections", func() bool { return open.count() == 0 })
}
