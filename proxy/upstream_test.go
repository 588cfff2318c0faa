package proxy

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// rawBackend accepts connections and hands each to serve, with its number.
func rawBackend(t *testing.T, serve func(n int, c net.Conn, r *bufio.Reader)) string {
	t.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	done := make(chan struct{})

	go func() {
		defer close(done)

		for n := 1; ; n++ {
			c, err := l.Accept()
			if err != nil {
				return
			}

			serve(n, c, bufio.NewReader(c))
			_ = c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})

	return "http://" + l.Addr().String() + "/mcp"
}

// request reads a request from a connection and returns its body, "" for none.
func request(r *bufio.Reader) string {
	req, err := http.ReadRequest(r)
	if err != nil {
		return ""
	}

	b, _ := io.ReadAll(req.Body)

	return string(b)
}

// post sends body through an upstream, and reads the answer.
func post(ctx context.Context, t *testing.T, u Upstream, url, body string, header ...string) (answer string, tr Trace, err error) {
	t.Helper()

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}

	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	resp, tr, err := u.Do(req)
	if err != nil {
		return "", tr, err
	}
	defer resp.Body.Close()

	b, err := io.ReadAll(resp.Body)

	return string(b), tr, err
}

// eachUpstream runs a test with every Upstream for backends with an address.
func eachUpstream(t *testing.T, test func(t *testing.T, u Upstream)) {
	t.Helper()

	for name, u := range map[string]Upstream{"pool": newPool(), "standard": newTransport()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			t.Cleanup(u.CloseIdle)
			test(t, u)
		})
	}
}

func testPool(t *testing.T) *pool {
	t.Helper()

	p := newPool()
	t.Cleanup(p.CloseIdle)

	return p
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestTransportTrace(t *testing.T) {
	t.Parallel()
	eachUpstream(t, func(t *testing.T, u Upstream) {
		t.Helper()

		url := rawBackend(t, func(_ int, c net.Conn, r *bufio.Reader) {
			for request(r) != "" {
				_, _ = io.WriteString(c, ok)
			}
		})
		for _, reused := range []bool{false, true} {
			got, tr, err := post(t.Context(), t, u, url, "x")
			want := Trace{Connected: true, Reused: reused, Wrote: true, WroteRequest: true, Answered: true}

			if got != "ok" || err != nil || tr != want {
				t.Errorf("got %q, %+v, %v, want %+v", got, tr, err, want)
			}
		}

		u.CloseIdle()

		if _, tr, err := post(t.Context(), t, u, url, "x"); err != nil || tr.Reused {
			t.Errorf("after CloseIdle: %+v, %v", tr, err)
		}
	})
}

func TestTransportFailures(t *testing.T) {
	t.Parallel()

	// The first answer of each backend is good, so that the connection is a
	// reused one where it stays open.
	tests := []struct {
		name   string
		serve  func(c net.Conn, r *bufio.Reader)
		header []string
		want   failureKind
	}{
		{"read and closed", func(_ net.Conn, r *bufio.Reader) { request(r) }, nil, sentNoAnswer},
		{"read and closed, with an idempotency key", func(_ net.Conn, r *bufio.Reader) { request(r) }, []string{"Idempotency-Key", "k"}, sentNoAnswer},
		{"read and closed, with another", func(_ net.Conn, r *bufio.Reader) { request(r) }, []string{"X-Idempotency-Key", "k"}, sentNoAnswer},
		{"reset after the first bytes", func(c net.Conn, r *bufio.Reader) {
			_, _ = r.ReadByte()

			if tcp, ok := c.(*net.TCPConn); ok {
				_ = tcp.SetLinger(0)
			}
		}, nil, sentNoAnswer},
		{"broken header", func(c net.Conn, r *bufio.Reader) {
			request(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Le")
		}, nil, midAnswer},
		{"broken body", func(c net.Conn, r *bufio.Reader) {
			request(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nok")
		}, nil, midAnswer},
		{"broken chunk", func(c net.Conn, r *bufio.Reader) {
			request(r)
			_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nok")
		}, nil, midAnswer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			eachUpstream(t, func(t *testing.T, u Upstream) {
				t.Helper()

				var posts atomic.Int32

				url := rawBackend(t, func(n int, c net.Conn, r *bufio.Reader) {
					if n == 1 {
						request(r)
						_, _ = io.WriteString(c, ok)
					}

					posts.Add(1)
					tt.serve(c, r)
				})

				if _, _, err := post(t.Context(), t, u, url, "first"); err != nil {
					t.Fatal(err)
				}

				_, tr, err := post(t.Context(), t, u, url, "second", tt.header...)
				if err == nil || failure(err, tr) != tt.want {
					t.Errorf("got %v (%+v), kind %d, want %d", err, tr, failure(err, tr), tt.want)
				}

				if !tr.Reused || !tr.Connected || !tr.Wrote {
					t.Errorf("trace %+v", tr)
				}

				if n := posts.Load(); n != 1 {
					t.Errorf("the backend got the request %d times", n)
				}
			})
		})
	}
}

func TestTransportRefused(t *testing.T) {
	t.Parallel()
	eachUpstream(t, func(t *testing.T, u Upstream) {
		t.Helper()

		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}

		_ = l.Close()

		_, tr, err := post(t.Context(), t, u, "http://"+l.Addr().String(), "x")
		if err == nil || failure(err, tr) != notSent || tr != (Trace{}) {
			t.Errorf("got %v, %+v", err, tr)
		}
	})
}

// TestTransportTLSRefused has a backend that hangs up during the handshake: bytes
// were written, but none of the request.
func TestTransportTLSRefused(t *testing.T) {
	t.Parallel()
	eachUpstream(t, func(t *testing.T, u Upstream) {
		t.Helper()

		url := rawBackend(t, func(_ int, _ net.Conn, r *bufio.Reader) { _, _ = r.ReadByte() })

		_, tr, err := post(t.Context(), t, u, strings.Replace(url, "http:", "https:", 1), "x")
		if err == nil || failure(err, tr) != notSent {
			t.Errorf("got %v, %+v", err, tr)
		}
	})
}

func TestTransportTLS(t *testing.T) {
	t.Parallel()

	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(s.Close)

	cfg := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS13}
	cfg.RootCAs.AddCert(s.Certificate())

	own, standard := newPool(), newTransport()
	own.tls, standard.rt.TLSClientConfig = cfg, cfg

	for _, u := range []Upstream{own, standard} {
		t.Cleanup(u.CloseIdle)

		for _, reused := range []bool{false, true} {
			got, tr, err := post(t.Context(), t, u, s.URL, "x")
			if err != nil || got != "x" || !tr.Wrote || !tr.Answered || tr.Reused != reused {
				t.Errorf("got %q, %+v, %v", got, tr, err)
			}
		}
	}
}

func TestTransportClientGone(t *testing.T) {
	t.Parallel()
	eachUpstream(t, func(t *testing.T, u Upstream) {
		t.Helper()

		ctx, cancel := context.WithCancel(t.Context())
		url := rawBackend(t, func(_ int, _ net.Conn, r *bufio.Reader) {
			request(r)
			cancel()
			_, _ = r.ReadByte()
		})

		_, tr, err := post(ctx, t, u, url, "x")
		if failure(err, tr) != clientGone || !tr.Wrote {
			t.Errorf("got %v, %+v", err, tr)
		}
	})
}

// TestSendOverStaleConnections closes idle connections as a graceful swap does:
// the next request must not fail for it, and not be sent twice.
func TestSendOverStaleConnections(t *testing.T) {
	t.Parallel()
	eachUpstream(t, func(t *testing.T, u Upstream) {
		t.Helper()

		const pooled = 20

		var served atomic.Int32

		arrived, release := make(chan struct{}, pooled), make(chan struct{})
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Warm") != "" {
				arrived <- struct{}{}
				<-release

				return
			}

			served.Add(1)
		}))
		t.Cleanup(s.Close)

		errs := make(chan error, pooled)

		for range pooled {
			go func() {
				_, _, err := post(t.Context(), t, u, s.URL, "x", "Warm", "1")
				errs <- err
			}()
		}

		for range pooled {
			<-arrived
		}

		close(release)

		for range pooled {
			if err := <-errs; err != nil {
				t.Fatal(err)
			}
		}

		const rounds = 100

		for range rounds {
			s.CloseClientConnections()

			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}

			resp, tr, err := send(u, req, []byte("x"))
			if err != nil {
				t.Fatalf("%v, %+v", err, tr)
			}

			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}

		if n := served.Load(); n != rounds {
			t.Errorf("the backend got %d requests, want %d", n, rounds)
		}
	})
}

// TestStaleConnectionIsNotWrittenTo has the backend close a connection without
// net/http knowing.
func TestStaleConnectionIsNotWrittenTo(t *testing.T) {
	t.Parallel()

	for name, linger := range map[string]int{"closed": -1, "reset": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()

			c, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()

			far, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}

			counted := countConn(c)
			counted.check(true)

			if n, err := counted.Write([]byte("x")); n != 1 || err != nil {
				t.Fatalf("wrote %d bytes to a good connection, %v", n, err)
			}

			_, _ = far.Read(make([]byte, 1))

			if tcp, ok := far.(*net.TCPConn); ok {
				_ = tcp.SetLinger(linger)
			}

			_ = far.Close()

			counted.check(true)

			if n, err := counted.Write([]byte("x")); n != 0 || !errors.Is(err, errStale) || counted.wrote.Load() != 1 {
				t.Errorf("wrote %d bytes to a dead connection, %v", n, err)
			}
		})
	}
}

func TestTransportAddsNothing(t *testing.T) {
	t.Parallel()
	eachUpstream(t, func(t *testing.T, u Upstream) {
		t.Helper()

		got := make(chan http.Header, 1)
		s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
		t.Cleanup(s.Close)

		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		req.Header["User-Agent"] = nil

		resp, _, err := u.Do(req)
		if err != nil {
			t.Fatal(err)
		}

		_ = resp.Body.Close()

		if h := <-got; len(h) != 0 {
			t.Errorf("the backend got %v", h)
		}
	})
}
