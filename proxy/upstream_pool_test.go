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
	"testing"

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
