package http1

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// stay is a handler that says when it begins, and goes on when it is told or its
// context ends.
type stay struct {
	began chan string
	leave chan struct{}
}

func newStay() *stay { return &stay{make(chan string, 10), make(chan struct{})} }

func (s *stay) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/quick" {
		_, _ = io.WriteString(w, "quick")
		return
	}

	_, _ = io.Copy(io.Discard, r.Body)
	s.began <- r.URL.Path

	select {
	case <-s.leave:
		_, _ = io.WriteString(w, "left")
	case <-r.Context().Done():
		s.began <- "ended"
	}
}

func wait[T any](t *testing.T, what string, c <-chan T) (v T) {
	t.Helper()

	select {
	case v = <-c:
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
	}

	return v
}

// TestClientLeaves: the request's context ends.
func TestClientLeaves(t *testing.T) {
	t.Parallel()

	s := newStay()
	addr := start(t, &http.Server{Handler: s})

	for _, sent := range []string{get("/"), post("/", "{}"), post("/", strings.Repeat("x", 100<<10)), get("/quick") + get("/")} {
		c := dial(t, addr)
		c.send(sent)
		wait(t, "the handler", s.began)

		_ = c.Close()

		if got := wait(t, "the end of the context", s.began); got != "ended" {
			t.Errorf("after %.20q: %s", sent, got)
		}
	}
}

// TestLongRequests: watching the client takes nothing away from what it sends next.
func TestLongRequests(t *testing.T) {
	t.Parallel()

	s := newStay()
	c := dial(t, start(t, &http.Server{Handler: s}))

	for _, next := range []string{"", post("/quick", "{}"), post("/quick", "{}")[:1]} {
		c.send(post("/", "{}"))
		wait(t, "the handler", s.began)
		<-time.After(2 * watchAfter) // it is watched then; if it weren't yet, the test would hold too
		c.send(next)

		s.leave <- struct{}{}

		if a := c.answer(http.MethodPost); a.Body != "left" {
			t.Errorf("the answer is %q", a.Body)
		}

		c.send(post("/quick", "{}")[len(next):])

		if a := c.answer(http.MethodPost); a.Body != "quick" {
			t.Errorf("the next answer is %q", a.Body)
		}
	}
}

// TestShutdown: idle connections are closed, and requests are answered before.
func TestShutdown(t *testing.T) {
	t.Parallel()

	for name, begin := range map[string]string{
		"here":          post("/", "{}"),
		"with net/http": "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newStay()
			srv := New(t.Context(), &http.Server{Handler: s}, slog.New(slog.DiscardHandler))
			addr := serve(t, srv)

			idle := dial(t, addr)
			idle.send(get("/quick"))
			idle.answer(http.MethodGet)

			busy := dial(t, addr)
			busy.send(begin)
			wait(t, "the handler", s.began)

			ctx, cancel := context.WithCancelCause(t.Context())
			over := make(chan error, 1)

			go func() { over <- srv.Shutdown(ctx) }()

			idle.closed()

			select {
			case err := <-over:
				t.Errorf("Shutdown returned %v while a request ran", err)
			default:
			}

			cut := errors.New("no patience")

			cancel(cut)

			if err := wait(t, "Shutdown", over); !errors.Is(err, cut) {
				t.Errorf("Shutdown returned %v", err)
			}

			go func() { over <- srv.Shutdown(t.Context()) }()

			close(s.leave)

			if a := busy.answer(http.MethodPost); a.Body != "left" || name == "here" && !a.Close {
				t.Errorf("the answer is %q, and that the connection closes is said: %t", a.Body, a.Close)
			}

			busy.closed()

			if err := wait(t, "Shutdown", over); err != nil {
				t.Errorf("Shutdown returned %v", err)
			}
		})
	}
}

// TestEnd: the end of the base context is that of all requests.
func TestEnd(t *testing.T) {
	t.Parallel()

	base, end := context.WithCancel(t.Context())
	s := newStay()
	addr := serve(t, New(base, &http.Server{Handler: s}, slog.New(slog.DiscardHandler)))

	dial(t, addr).send(post("/", "{}"))
	wait(t, "the handler", s.began)
	end()

	if got := wait(t, "the end of the request", s.began); got != "ended" {
		t.Error(got)
	}

	dial(t, addr).send(post("/", "{}"))
	wait(t, "the handler", s.began)

	if got := wait(t, "the end of a request that came later", s.began); got != "ended" {
		t.Error(got)
	}
}

// TestTimeouts: who doesn't send is let go, at once or after a request.
func TestTimeouts(t *testing.T) {
	t.Parallel()

	addr := start(t, &http.Server{
		Handler: newStay(), ReadHeaderTimeout: 50 * time.Millisecond, IdleTimeout: 80 * time.Millisecond,
	})

	for _, sent := range []string{"", "G", "POST / HTTP/1.1\r\nHost:", get("/quick"), get("/quick") + "G"} {
		c := dial(t, addr)
		c.send(sent)

		if strings.HasPrefix(sent, get("/quick")) {
			c.answer(http.MethodGet)
		}

		c.closed()
	}
}

// TestBodyDeadline: a handler can bound the time for a body, and bound it no more.
func TestBodyDeadline(t *testing.T) {
	t.Parallel()

	addr := start(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		rc := http.NewResponseController(w)
		_ = rc.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		_, err := io.ReadAll(r.Body)
		_ = rc.SetReadDeadline(time.Time{})
		_ = rc.SetWriteDeadline(time.Now().Add(patience))
		fmt.Fprint(w, err, errors.Is(err, os.ErrDeadlineExceeded))
	})})

	c := dial(t, addr)

	for range 2 {
		c.send(post("/", strings.Repeat("x", 100<<10)))

		if a := c.answer(http.MethodPost); !strings.HasPrefix(a.Body, "<nil>") {
			t.Errorf("a body in time: %s", a.Body)
		}
	}

	c.send(post("/", "{}")[:len(post("/", "{}"))-1])

	if a := c.answer(http.MethodPost); !strings.HasSuffix(a.Body, "true") || !a.Close {
		t.Errorf("a body too late: %s; the connection closes: %t", a.Body, a.Close)
	}

	c.closed()
}

// TestBrokenBody: a handler learns that the body isn't whole.
func TestBrokenBody(t *testing.T) {
	t.Parallel()

	errs := make(chan error, 1)
	addr := start(t, &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		errs <- err
	})})

	c := dial(t, addr)
	c.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\n12")
	_ = c.Close()

	if err := wait(t, "the handler", errs); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the body ends with %v", err)
	}
}

// TestEvents: what is flushed arrives, and what is cut off doesn't look whole.
func TestEvents(t *testing.T) {
	t.Parallel()

	for name, length := range map[string]string{"chunks": "", "known length": "100"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			next := make(chan struct{})
			addr := start(t, &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				if length != "" {
					w.Header().Set("Content-Length", length)
				}

				for range 3 {
					_, _ = io.WriteString(w, "event")
					_ = http.NewResponseController(w).Flush()
					<-next
				}

				panic(http.ErrAbortHandler)
			})})

			c := dial(t, addr)
			c.send(get("/"))

			resp, err := http.ReadResponse(c.r, httptest.NewRequest(http.MethodGet, "/", nil))
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()

			for range 3 {
				if _, err := io.ReadFull(resp.Body, make([]byte, len("event"))); err != nil {
					t.Fatal(err)
				}

				next <- struct{}{}
			}

			if _, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("the answer ends with %v", err)
			}
		})
	}
}

// TestPanic: a bug in a handler is told, and ends its connection only.
func TestPanic(t *testing.T) {
	t.Parallel()

	var told lockedBuffer

	addr := serve(t, New(t.Context(), &http.Server{Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/abort" {
			panic(http.ErrAbortHandler)
		}

		panic(r.URL.Path)
	})}, slog.New(slog.NewTextHandler(&told, nil))))

	for _, path := range []string{"/abort", "/bug"} {
		c := dial(t, addr)
		c.send(get(path))
		c.closed()
	}

	for until := time.Now().Add(patience); !strings.Contains(told.String(), "/bug"); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("the log has %q", told.String())
		}
	}

	if strings.Contains(told.String(), http.ErrAbortHandler.Error()) {
		t.Errorf("the log has %q", told.String())
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()

	return b.b.String()
}

// TestTLS: handlers learn of TLS whoever serves the connection, and HTTP/2 works.
func TestTLS(t *testing.T) {
	t.Parallel()

	forCert := httptest.NewUnstartedServer(nil)
	forCert.StartTLS()
	t.Cleanup(forCert.Close)

	srv := New(t.Context(), &http.Server{
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			fmt.Fprint(w, r.Proto, r.TLS != nil && r.TLS.HandshakeComplete)
		}),
	}, slog.New(slog.DiscardHandler))

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}

	go func() {
		_ = srv.Serve(tls.NewListener(l, &tls.Config{
			Certificates: forCert.TLS.Certificates, NextProtos: []string{"h2", "http/1.1"},
		}))
	}()

	t.Cleanup(func() { _ = srv.Close() })

	url := "https://" + l.Addr().String() + "/"

	for _, h2 := range []bool{true, false} {
		tr, _ := forCert.Client().Transport.(*http.Transport)
		tr = tr.Clone()
		tr.ForceAttemptHTTP2 = h2

		if !h2 {
			tr.TLSClientConfig.NextProtos = []string{"http/1.1"}
		}

		t.Cleanup(tr.CloseIdleConnections)

		for _, body := range []io.Reader{strings.NewReader("{}"), io.MultiReader(strings.NewReader("{}"))} { // by length, and in chunks
			req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)

			resp, err := tr.RoundTrip(req)
			if err != nil {
				t.Fatal(err)
			}

			got, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()

			if want := fmt.Sprintf("HTTP/%d.%dtrue", resp.ProtoMajor, resp.ProtoMinor); string(got) != want || h2 != (resp.ProtoMajor == 2) {
				t.Errorf("HTTP/2 %t: %q, want %q", h2, got, want)
			}
		}
	}

	c := dial(t, l.Addr().String())
	c.send(get("/"))

	if a := c.answer(http.MethodGet); a.Code != http.StatusBadRequest {
		t.Errorf("without TLS: %s", a.Status)
	}
}
