package proxy

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
		if _, err := appendHead(nil, bad, 0); !errors.Is(err, errBadRequest) {
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
		head, err := appendHead(nil, r, 0)
		if err != nil {
			t.Error(err)
			continue
		}

		got := string(head)
		if strings.Contains(want, "X: 1") && strings.Index(got, "Y:") < strings.Index(got, "X:") {
			got = strings.Replace(got, "Y: \r\n", "", 1)
			got = strings.Replace(got, "\r\n\r\n", "\r\nY: \r\n\r\n", 1)
		}

		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
	}
}
