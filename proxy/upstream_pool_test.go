package proxy

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// do sends a request with a body and returns the answer.
func do(ctx context.Context, t *testing.T, u Upstream, method, url, body string) (*http.Response, Trace, error) {
	t.Helper()

	req, err := http.NewRequestWithContext(ctx, method, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	setBody(req, []byte(body))

	return u.Do(req)
}

// say answers every request of a connection with the same bytes, and then hangs up
// if told so.
func say(answer string, hangUp bool) func(int, net.Conn, *bufio.Reader) {
	return func(_ int, c net.Conn, r *bufio.Reader) {
		for request(r) != "" {
			if _, err := io.WriteString(c, answer); err != nil || hangUp {
				return
			}
		}
	}
}

// TestPoolAnswers: what the forms that an answer can have come to, and whether the
// connection serves the next request.
func TestPoolAnswers(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		answer  string
		hangUp  bool
		method  string
		status  int
		body    string
		trailer http.Header
		reused  bool
	}{
		"length":                   {answer: ok, body: "ok", reused: true},
		"length, and said to last": {answer: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok", body: "ok"},
		"no body":                  {answer: "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n", status: 202, reused: true},
		"no body can be":           {answer: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, reused: true},
		"HEAD":                     {answer: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", method: http.MethodHead, reused: true},
		"chunked":                  {answer: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\no\r\n1;x=y\r\nk\r\n0\r\n\r\n", body: "ok", reused: true},
		"chunked with a trailer": {
			answer: "HTTP/1.1 200 OK\r\nTrailer: X-After\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-After: 1\r\n\r\n",
			body:   "ok", trailer: http.Header{"X-After": {"1"}}, reused: true,
		},
		"up to the end":      {answer: "HTTP/1.1 200 OK\r\n\r\nok", hangUp: true, body: "ok"},
		"HTTP/1.0":           {answer: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", body: "ok"},
		"continue":           {answer: "HTTP/1.1 100 Continue\r\n\r\n" + ok, body: "ok", reused: true},
		"early hints, twice": {answer: strings.Repeat("HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n", 2) + ok, body: "ok", reused: true},
		"bytes nobody asked": {answer: ok + "x", body: "ok"},
		"another answer":     {answer: ok + ok, body: "ok"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			url := rawBackend(t, say(tt.answer, tt.hangUp))
			p := testPool(t)

			method, status := http.MethodPost, http.StatusOK
			if tt.method != "" {
				method = tt.method
			}

			if tt.status != 0 {
				status = tt.status
			}

			for n := range 2 {
				resp, tr, err := do(t.Context(), t, p, method, url, "x")
				if err != nil {
					t.Fatal(err)
				}

				b, err := io.ReadAll(resp.Body)
				if err != nil || string(b) != tt.body || resp.StatusCode != status {
					t.Errorf("got %d %q, %v", resp.StatusCode, b, err)
				}

				if diff := cmp.Diff(tt.trailer, resp.Trailer); diff != "" {
					t.Error(diff)
				}

				if err := resp.Body.Close(); err != nil {
					t.Error(err)
				}

				if want := (Trace{Connected: true, Reused: n > 0 && tt.reused, Wrote: true, WroteRequest: true, Answered: true}); tr != want {
					t.Errorf("trace %+v, want %+v", tr, want)
				}
			}
		})
	}
}

// TestPoolBrokenAnswers: what is no answer, and what breaks off.
func TestPoolBrokenAnswers(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		answer string
		is     error
	}{
		"no HTTP":            {"SSH-2.0-x\r\n\r\n", nil},
		"header too large":   {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 2*maxHeader) + "\r\n\r\n", errHeaderTooLarge},
		"hints without end":  {strings.Repeat("HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n", maxHeader/16), errHeaderTooLarge},
		"another protocol":   {"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", errSwitched},
		"no end of header":   {"HTTP/1.1 200 OK\r\n", io.ErrUnexpectedEOF},
		"too short":          {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", io.ErrUnexpectedEOF},
		"no last chunk":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n", io.ErrUnexpectedEOF},
		"hint and nothing":   {"HTTP/1.1 103 Early Hints\r\n\r\n", io.ErrUnexpectedEOF},
		"length is negative": {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", nil},
		"two lengths":        {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nok", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			p := testPool(t)

			_, tr, err := post(t.Context(), t, p, rawBackend(t, say(tt.answer, true)), "x")
			if err == nil || tt.is != nil && !errors.Is(err, tt.is) || failure(err, tr) != midAnswer {
				t.Errorf("got %v, %+v", err, tr)
			}

			if p.take(origin{}) != nil || len(p.idle) > 0 {
				t.Error("the connection was kept")
			}
		})
	}
}

// TestPoolAnswerBeforeBody has a backend refuse a large request without reading it.
func TestPoolAnswerBeforeBody(t *testing.T) {
	t.Parallel()

	for _, drain := range []bool{false, true} {
		t.Run(fmt.Sprintf("then reads it %v", drain), func(t *testing.T) {
			t.Parallel()

			// The rest is read once the client is done with the answer: whether all of
			// the body has left by then is no matter of luck.
			done := make(chan struct{}, 3)
			url := rawBackend(t, func(_ int, c net.Conn, r *bufio.Reader) {
				if _, err := http.ReadRequest(r); err != nil {
					return
				}

				_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")

				<-done

				if drain {
					_, _ = io.Copy(io.Discard, r)
					return
				}

				_, _ = r.ReadByte()
			})
			p := testPool(t)

			for range 3 {
				resp, tr, err := do(t.Context(), t, p, http.MethodPost, url, strings.Repeat("x", 16<<20))
				if err != nil {
					t.Fatal(err)
				}

				if b, err := io.ReadAll(resp.Body); resp.StatusCode != http.StatusRequestEntityTooLarge || string(b) != "no" || err != nil || !tr.Wrote || tr.WroteRequest {
					t.Errorf("got %d %q, %v, %+v", resp.StatusCode, b, err, tr)
				}

				_ = resp.Body.Close()

				done <- struct{}{}
			}

			if len(p.idle) > 0 {
				t.Error("a connection with half a request was kept")
			}
		})
	}
}

// TestPoolAnswerBeforeBodyIsRead: whoever answers early and reads the rest then may do
// the same with the next request, so that it gets another connection.
func TestPoolAnswerBeforeBodyIsRead(t *testing.T) {
	t.Parallel()

	const size = 16 << 20

	drain, drained := make(chan struct{}), make(chan struct{})
	url := rawBackend(t, func(_ int, c net.Conn, r *bufio.Reader) {
		if _, err := http.ReadRequest(r); err != nil {
			return
		}

		_, _ = io.WriteString(c, "HTTP/1.1 413 Content Too Large\r\nContent-Length: 2\r\n\r\nno")

		<-drain

		_, _ = io.CopyN(io.Discard, r, size)

		close(drained)

		_, _ = io.Copy(io.Discard, r)
	})
	p := testPool(t)

	resp, _, err := do(t.Context(), t, p, http.MethodPost, url, strings.Repeat("x", size))
	if err != nil {
		t.Fatal(err)
	}

	close(drain)

	<-drained

	if b, err := io.ReadAll(resp.Body); string(b) != "no" || err != nil {
		t.Errorf("got %q, %v", b, err)
	}

	_ = resp.Body.Close()

	if len(p.idle) > 0 {
		t.Error("the connection was kept")
	}
}

// TestPoolLargeBody: a body that is written aside arrives, and so do those after it.
func TestPoolLargeBody(t *testing.T) {
	t.Parallel()

	url := rawBackend(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for {
			body := request(r)
			if body == "" {
				return
			}

			_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n%08d", len(body))
		}
	})
	p := testPool(t)

	for n, size := range []int{4 << 20, inlineWrite, 10, 100 << 10} {
		got, tr, err := post(t.Context(), t, p, url, strings.Repeat("x", size))

		// After a large one, the answer may be here before the end of the write is
		// known: then another connection is used.
		if err != nil || got != fmt.Sprintf("%08d", size) || !tr.Wrote || n == 3 && !tr.Reused {
			t.Errorf("%d bytes: %q, %+v, %v", size, got, tr, err)
		}
	}
}

// TestPoolBrokenWrite: a large request whose connection breaks may have run.
func TestPoolBrokenWrite(t *testing.T) {
	t.Parallel()

	url := rawBackend(t, func(_ int, c net.Conn, r *bufio.Reader) {
		_, _ = r.ReadByte()

		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
	})
	p := testPool(t)

	_, tr, err := post(t.Context(), t, p, url, strings.Repeat("x", 16<<20))
	if err == nil || failure(err, tr) != sentNoAnswer || tr.WroteRequest {
		t.Errorf("got %v, %+v", err, tr)
	}
}

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

// manyConns answers the requests of many connections at one time: initialize with a
// session, everything else with one and the same body.
func manyConns(tb testing.TB, header http.Header, body string) string {
	tb.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}

	var head strings.Builder

	_ = header.Write(&head)

	answer := func(session, body string) string {
		return fmt.Sprintf("HTTP/1.1 200 OK\r\n%s%sContent-Length: %d\r\n\r\n%s", head.String(), session, len(body), body)
	}
	other := answer("", body)
	first := answer("Mcp-Session-Id: s\r\n", `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-06-18","capabilities":{}}}`)

	var wg sync.WaitGroup

	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}

			wg.Go(func() {
				defer func() { _ = c.Close() }()

				for r := bufio.NewReader(c); ; {
					got := request(r)
					say := other

					switch {
					case got == "":
						return
					case strings.Contains(got, `"initialize"`):
						say = first
					}

					if _, err := io.WriteString(c, say); err != nil {
						return
					}
				}
			})
		}
	})
	tb.Cleanup(wg.Wait)
	tb.Cleanup(func() { _ = l.Close() })

	return "http://" + l.Addr().String() + "/mcp"
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

// TestPoolRequestHead: what goes over the wire, and what never does.
func TestPoolRequestHead(t *testing.T) {
	t.Parallel()

	req := func(method, target string, header http.Header) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), method, target, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		r.Header = header

		return r
	}
	raw := req(http.MethodGet, "http://host/", nil)
	raw.URL.RawQuery = "a=b c"

	smuggled := req(http.MethodGet, "http://host/", nil)
	smuggled.URL.RawQuery = "a\r\nX: y"

	for _, bad := range []*http.Request{
		raw, smuggled,
		req(http.MethodPost, "http://host/", http.Header{"X": {"a\r\nY: b"}}),
		req(http.MethodPost, "http://host/", http.Header{"X Y": {"a"}}),
		req(http.MethodPost, "http://host/", http.Header{"": {"a"}}),
		{Method: "GET /", URL: raw.URL},
		{Method: http.MethodGet, URL: raw.URL, Host: "a b"},
	} {
		if err := (&headBuffer{}).request(bad, 0); !errors.Is(err, errBadRequest) {
			t.Errorf("%v passed: %v", bad, err)
		}
	}

	for want, r := range map[string]*http.Request{
		"GET / HTTP/1.1\r\nHost: host\r\n\r\n":                                          req(http.MethodGet, "http://host", nil),
		"POST /a%20b?c=%20d HTTP/1.1\r\nHost: host:1\r\nContent-Length: 0\r\n\r\n":      req(http.MethodPost, "http://host:1/a%20b?c=%20d", nil),
		"DELETE / HTTP/1.1\r\nHost: [fe80::1]:80\r\nX: 1\r\nX: 2\t\xff\r\nY: \r\n\r\n":  req(http.MethodDelete, "http://[fe80::1%25eth0]:80/", http.Header{"X": {"1", "2\t\xff"}, "Y": {""}}),
		"GET / HTTP/1.1\r\nHost: [::1]\r\n\r\n":                                         req(http.MethodGet, "http://[::1]", http.Header{"User-Agent": nil}),
		"GET /%E2%82%AC?\xe2\x82\xac HTTP/1.1\r\nHost: host\r\nMcp-Name: =?x?=\r\n\r\n": req(http.MethodGet, "http://host/€?€", http.Header{"Mcp-Name": {"=?x?="}}),
	} {
		var h headBuffer
		if err := h.request(r, 0); err != nil {
			t.Error(err)
			continue
		}

		got := string(h.b)
		if strings.Contains(want, "X: 1") && strings.Index(got, "Y:") < strings.Index(got, "X:") {
			got = strings.Replace(got, "Y: \r\n", "", 1)
			got = strings.Replace(got, "\r\n\r\n", "\r\nY: \r\n\r\n", 1)
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}

// TestPoolStream gives every event to the reader as it comes.
func TestPoolStream(t *testing.T) {
	t.Parallel()

	next := make(chan string)
	url := rawBackend(t, func(_ int, c net.Conn, r *bufio.Reader) {
		_, _ = http.ReadRequest(r)
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")

		for s := range next {
			_, _ = fmt.Fprintf(c, "%x\r\n%s\r\n", len(s), s)
		}
	})
	p := testPool(t)

	resp, _, err := do(t.Context(), t, p, http.MethodGet, url, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()

	defer close(next)

	buf := make([]byte, 4096)

	for _, want := range []string{"data: 1\n\n", "data: 2\n\n", strings.Repeat("x", 4096)} {
		next <- want

		n, err := io.ReadAtLeast(resp.Body, buf, len(want))
		if got := string(buf[:n]); got != want || err != nil {
			t.Errorf("got %q, %v", got, err)
		}
	}
}

// TestStandardTransport switches over and back while sessions go on.
func TestStandardTransport(t *testing.T) {
	r := newRig(t)
	r.backend.start(mcpServer([]string{"a"}))

	id := r.initialize()
	cfg := *r.proxy.config()

	for _, standard := range []bool{true, false} {
		cfg.StandardTransport = standard

		if err := r.proxy.Update(cfg); err != nil {
			t.Fatal(err)
		}

		if _, ok := r.proxy.current.Load().servers["default"].upstream().(*transport); ok != standard {
			t.Errorf("the standard transport is in use: %v, want %v", ok, standard)
		}

		if g := r.post(id, callBody(1, "a")); !strings.Contains(g.body, "ran a") {
			t.Errorf("call: %s", g.body)
		}
	}
}
