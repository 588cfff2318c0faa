package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"
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

func testTransport(t *testing.T) *transport {
	t.Helper()

	u := newTransport()
	t.Cleanup(u.CloseIdle)

	return u
}

const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

func TestTransportTrace(t *testing.T) {
	t.Parallel()

	url := rawBackend(t, func(_ int, c net.Conn, r *bufio.Reader) {
		for request(r) != "" {
			_, _ = io.WriteString(c, ok)
		}
	})
	u := testTransport(t)

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
			_ = c.(*net.TCPConn).SetLinger(0)
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

			var posts atomic.Int32

			url := rawBackend(t, func(n int, c net.Conn, r *bufio.Reader) {
				if n == 1 {
					request(r)
					_, _ = io.WriteString(c, ok)
				}

				posts.Add(1)
				tt.serve(c, r)
			})
			u := testTransport(t)

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
	}
}

func TestTransportRefused(t *testing.T) {
	t.Parallel()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	_ = l.Close()

	_, tr, err := post(t.Context(), t, testTransport(t), "http://"+l.Addr().String(), "x")
	if err == nil || failure(err, tr) != notSent || tr != (Trace{}) {
		t.Errorf("got %v, %+v", err, tr)
	}
}

// TestTransportTLSRefused has a backend that hangs up during the handshake: bytes
// were written, but none of the request.
func TestTransportTLSRefused(t *testing.T) {
	t.Parallel()

	url := rawBackend(t, func(_ int, _ net.Conn, r *bufio.Reader) { _, _ = r.ReadByte() })

	_, tr, err := post(t.Context(), t, testTransport(t), strings.Replace(url, "http:", "https:", 1), "x")
	if err == nil || failure(err, tr) != notSent {
		t.Errorf("got %v, %+v", err, tr)
	}
}

func TestTransportTLS(t *testing.T) {
	t.Parallel()

	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	t.Cleanup(s.Close)

	u := testTransport(t)
	u.rt.TLSClientConfig = s.Client().Transport.(*http.Transport).TLSClientConfig

	got, tr, err := post(t.Context(), t, u, s.URL, "x")
	if err != nil || got != "x" || !tr.Wrote || !tr.Answered {
		t.Errorf("got %q, %+v, %v", got, tr, err)
	}
}

func TestTransportClientGone(t *testing.T) {
	t.Parallel()

	ctx, cancel := context.WithCancel(t.Context())
	url := rawBackend(t, func(_ int, _ net.Conn, r *bufio.Reader) {
		request(r)
		cancel()
		_, _ = r.ReadByte()
	})

	_, tr, err := post(ctx, t, testTransport(t), url, "x")
	if failure(err, tr) != clientGone || !tr.Wrote {
		t.Errorf("got %v, %+v", err, tr)
	}
}

// TestTransportStaleConnections closes idle connections as a graceful swap does:
// once that was noticed, no request fails for it.
func TestTransportStaleConnections(t *testing.T) {
	t.Parallel()

	const n = 20

	var s *httptest.Server

	arrived, release := make(chan struct{}, n), make(chan struct{})
	s = httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	t.Cleanup(s.Close)

	u := testTransport(t)
	errs := make(chan error, n)

	for range n {
		go func() {
			_, _, err := post(t.Context(), t, u, s.URL, "x")
			errs <- err
		}()
	}

	for range n {
		<-arrived
	}

	close(release)

	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}

	s.CloseClientConnections()

	for deadline := time.Now().Add(10 * time.Second); ; {
		_, tr, err := post(t.Context(), t, u, s.URL, "x")
		if err == nil && !tr.Reused {
			return
		}

		if time.Now().After(deadline) {
			t.Fatalf("still %+v, %v", tr, err)
		}
	}
}

func TestTransportAddsNothing(t *testing.T) {
	t.Parallel()

	got := make(chan http.Header, 1)
	s := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r.Header }))
	t.Cleanup(s.Close)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}

	req.Header["User-Agent"] = nil

	resp, _, err := testTransport(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}

	_ = resp.Body.Close()

	if h := <-got; len(h) != 0 {
		t.Errorf("the backend got %v", h)
	}
}

func TestSendRedirects(t *testing.T) {
	t.Parallel()

	body := bytes.Repeat([]byte("0123456789abcdef"), 2<<20/16)

	var foreign atomic.Int32

	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { foreign.Add(1) }))
	t.Cleanup(other.Close)

	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)

	mux.HandleFunc("/mcp/", func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Method, " ", r.URL.RequestURI(), " ", r.Header.Get("Authorization"), " ", bytes.Equal(got, body))
	})

	tests := []struct {
		name, method string
		code         int
		location     string
		want         string // "" is errRedirect
	}{
		{"relative", "POST", 307, "mcp/", "200 POST /mcp/ a true"},
		{"absolute path", "POST", 308, "/mcp/?x=1", "200 POST /mcp/?x=1 a true"},
		{"own host", "POST", 307, s.URL + "/mcp/", "200 POST /mcp/ a true"},
		{"own host as it was named", "POST", 308, "http://mcp.example:1/mcp/", "200 POST /mcp/ a true"},
		{"own host as it was forwarded", "POST", 308, "https://public.example/mcp/", "200 POST /mcp/ a true"},
		{"the same behind TLS", "POST", 308, "https://mcp.example:1/mcp/", "200 POST /mcp/ a true"},
		{"network path of its own", "POST", 307, strings.TrimPrefix(s.URL, "http:") + "/mcp/", "200 POST /mcp/ a true"},
		{"GET", "GET", 302, "/mcp/", "200 GET /mcp/ a true"},
		{"DELETE", "DELETE", 307, "/mcp/", "200 DELETE /mcp/ a true"},
		{"would become a GET", "POST", 302, "/mcp/", "302 "},
		{"see other", "POST", 303, "/mcp/", "303 "},
		{"foreign host", "POST", 307, other.URL + "/mcp/", ""},
		{"foreign host, see other", "POST", 303, other.URL + "/mcp/", ""},
		{"foreign host, GET", "GET", 302, other.URL + "/mcp/", ""},
		{"foreign network path", "POST", 307, strings.TrimPrefix(other.URL, "http:") + "/mcp/", ""},
		{"other port", "POST", 307, "http://127.0.0.1:1/mcp/", ""},
		{"other scheme", "POST", 307, "ftp://mcp.example:1/mcp/", ""},
		{"user", "POST", 307, strings.Replace(s.URL, "http://", "http://u:p@", 1) + "/mcp/", ""},
		{"to itself", "POST", 307, "", ""},
		{"not a URL", "POST", 307, "http://[::1", ""},
		{"no Location", "POST", 307, "-", "307 "},
	}
	for i, tt := range tests {
		path := fmt.Sprint("/from/", i)
		if tt.location == "" {
			tt.location = path
		}

		if !strings.Contains(tt.location, "/") || tt.location == "mcp/" {
			tt.location = strings.Replace(tt.location, "mcp/", "../mcp/", 1)
		}

		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if tt.location != "-" {
				w.Header().Set("Location", tt.location)
			}

			w.WriteHeader(tt.code)
		})
	}

	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			req, err := http.NewRequestWithContext(t.Context(), tt.method, fmt.Sprint(s.URL, "/from/", i), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}

			req.Host = "mcp.example:1"
			req.Header.Set("Authorization", "a")
			req.Header.Set("X-Forwarded-Host", "public.example")

			resp, _, err := send(testTransport(t), req, body)
			if tt.want == "" {
				if !errors.Is(err, errRedirect) {
					t.Fatalf("got %v", err)
				}

				return
			}

			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()

			got, _ := io.ReadAll(resp.Body)
			if s := fmt.Sprint(resp.StatusCode, " ", string(got)); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
		})
	}

	t.Cleanup(func() {
		if n := foreign.Load(); n != 0 {
			t.Errorf("the foreign host got %d requests", n)
		}
	})
}

func TestSendRedirectLoops(t *testing.T) {
	t.Parallel()

	var hits atomic.Int32

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := hits.Add(1)

		next := "/b"
		switch r.URL.Path {
		case "/b":
			next = "/a"
		case "/n":
			next = fmt.Sprint("/n?", n)
		}

		http.Redirect(w, r, next, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(s.Close)

	for _, tt := range []struct {
		path string
		hits int32
	}{{"/a", 2}, {"/n", maxRedirects + 1}} {
		hits.Store(0)

		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+tt.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		if _, _, err := send(testTransport(t), req, []byte("x")); !errors.Is(err, errRedirect) || hits.Load() != tt.hits {
			t.Errorf("%s: %v after %d requests", tt.path, err, hits.Load())
		}
	}
}
