package proxy

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestPoolCancelled ends a request at every point of its life.
func TestPoolCancelled(t *testing.T) {
	t.Parallel()

	stuck := func(answer string) func(int, net.Conn, *bufio.Reader) {
		return func(_ int, c net.Conn, r *bufio.Reader) {
			_, _ = http.ReadRequest(r)
			_, _ = io.WriteString(c, answer)
			_, _ = io.Copy(io.Discard, r)
		}
	}
	tests := map[string]struct {
		serve func(int, net.Conn, *bufio.Reader)
		size  int
	}{
		"nothing is answered":                 {stuck(""), 1},
		"nothing is answered to a large one":  {stuck(""), 4 << 20},
		"within the header":                   {stuck("HTTP/1.1 200 OK\r\n"), 1},
		"after a hint":                        {stuck("HTTP/1.1 103 Early Hints\r\n\r\n"), 1},
		"within a body":                       {stuck("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), 1},
		"within an event stream":              {stuck("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n"), 1},
		"within a body that ends at the end":  {stuck("HTTP/1.1 200 OK\r\n\r\nok"), 1},
		"nothing is read of a large request":  {func(_ int, _ net.Conn, r *bufio.Reader) { _, _ = http.ReadRequest(r); _, _ = r.Peek(1) }, 16 << 20},
		"answered before the rest is written": {stuck("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok"), 16 << 20},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := rawBackend(t, tt.serve)
			p := testPool(t)

			ctx, cancel := context.WithCancel(t.Context())
			timer := time.AfterFunc(50*time.Millisecond, cancel)

			defer timer.Stop()

			_, tr, err := post(ctx, t, p, url, strings.Repeat("x", tt.size))
			if !errors.Is(err, context.Canceled) || failure(err, tr) != clientGone {
				t.Errorf("got %v, %+v", err, tr)
			}

			if len(p.idle) > 0 {
				t.Error("the connection was kept")
			}

			if _, tr, err := post(ctx, t, p, url, "x"); !errors.Is(err, context.Canceled) || tr != (Trace{}) {
				t.Errorf("after the end: %v, %+v", err, tr)
			}
		})
	}
}

// TestPoolCancelledAtTheEnd cancels just when an answer is over: the connection is
// kept only if that can't hit the next request.
func TestPoolCancelledAtTheEnd(t *testing.T) {
	t.Parallel()

	url := manyConns(t, nil, "ok")
	p := testPool(t)

	var wg sync.WaitGroup

	for range 8 {
		wg.Go(func() {
			for range 200 {
				ctx, cancel := context.WithCancel(t.Context())
				gone := make(chan struct{})

				resp, _, err := do(ctx, t, p, http.MethodPost, url, "x")
				if err != nil {
					t.Error(err)
				}

				go func() {
					defer close(gone)

					cancel()
				}()

				if resp != nil {
					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()
				}

				<-gone

				if got, tr, err := post(t.Context(), t, p, url, "x"); got != "ok" || err != nil {
					t.Errorf("the next request: %q, %+v, %v", got, tr, err)
				}
			}
		})
	}

	wg.Wait()
}

// TestPoolClose: the body of an answer may be closed at any time, also from
// elsewhere, and the connection with it.
func TestPoolClose(t *testing.T) {
	t.Parallel()

	gone := make(chan struct{})
	url := rawBackend(t, func(_ int, c net.Conn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
		_, _ = io.Copy(io.Discard, r)
		close(gone)
	})
	p := testPool(t)

	resp, _, err := do(t.Context(), t, p, http.MethodGet, url, "") //nolint:bodyclose // it is, below
	if err != nil {
		t.Fatal(err)
	}

	read := make(chan error)

	go func() {
		_, err := io.Copy(io.Discard, resp.Body)
		read <- err
	}()

	_ = resp.Body.Close()

	if err := <-read; err == nil {
		t.Error("reading went on")
	}

	<-gone

	if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
		t.Error("it can be read after Close")
	}
}

// TestPoolUnsolicited: a connection on which something came while it was idle isn't
// used again, and neither is one that was idle for too long.
func TestPoolUnsolicited(t *testing.T) {
	t.Parallel()

	var conns atomic.Int32

	more := make(chan struct{})
	url := rawBackend(t, func(n int, c net.Conn, r *bufio.Reader) {
		conns.Store(int32(n))
		request(r)
		_, _ = io.WriteString(c, ok)

		if n == 1 {
			<-more
			_, _ = io.WriteString(c, "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
			more <- struct{}{}
		}

		if request(r) != "" {
			_, _ = io.WriteString(c, ok)
		}
	})
	p := testPool(t)

	for n := range 3 {
		if got, tr, err := post(t.Context(), t, p, url, "x"); got != "ok" || err != nil || tr.Reused != (n == 2) {
			t.Errorf("request %d: %q, %+v, %v", n, got, tr, err)
		}

		if n == 0 {
			more <- struct{}{}
			<-more
		}
	}

	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

func TestPoolIdle(t *testing.T) {
	t.Parallel()

	url := manyConns(t, nil, "ok")
	p := newPool()

	if _, _, err := post(t.Context(), t, p, url, "x"); err != nil {
		t.Fatal(err)
	}

	o := origin{"http", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp")}

	c := p.take(o)
	if c == nil || !c.alive() {
		t.Fatal("there is no idle connection")
	}

	p.put(c)

	p.mu.Lock()
	c.since = c.since.Add(-idleTimeout)
	p.mu.Unlock()

	if c.alive() {
		t.Error("a connection that has been idle for too long would be used")
	}

	p.sweep()

	if len(p.idle) != 0 || p.timer != nil {
		t.Errorf("%d idle connections are left", len(p.idle))
	}

	if got, tr, err := post(t.Context(), t, p, url, "x"); got != "ok" || err != nil || tr.Reused {
		t.Errorf("got %q, %+v, %v", got, tr, err)
	}

	p.sweep()

	if len(p.idle) != 1 || p.timer == nil {
		t.Error("a young connection was swept away")
	}

	p.CloseIdle()

	if len(p.idle) != 0 || p.timer != nil {
		t.Error("CloseIdle left something")
	}
}
