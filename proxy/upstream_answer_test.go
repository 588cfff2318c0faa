package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// readOrdinary reads an answer as a pool does, nil when it is left to net/http.
func readOrdinary(req *http.Request, c *poolConn, raw []byte) *http.Response {
	c.r = bufio.NewReaderSize(bytes.NewReader(raw), 4<<10)
	_, _ = c.r.Peek(1)

	return c.ordinary(req, new(pooled))
}

//nolint:bodyclose // there is no connection
func TestOrdinaryAnswers(t *testing.T) {
	t.Parallel()

	tests := map[string]struct {
		head string
		want bool
	}{
		"length":                {"HTTP/1.1 200 OK\r\nContent-Length: 2", true},
		"no reason":             {"HTTP/1.1 200\r\nContent-Length: 2", true},
		"chunked":               {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked", true},
		"error":                 {"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 2", true},
		"closes":                {"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2", true},
		"field twice":           {"HTTP/1.1 200 OK\r\nX: 1\r\nContent-Length: 2\r\nX: 2", true},
		"up to the end":         {"HTTP/1.1 200 OK", false},
		"hint":                  {"HTTP/1.1 103 Early Hints\r\nContent-Length: 2", false},
		"no body":               {"HTTP/1.1 204 No Content\r\nContent-Length: 2", false},
		"HTTP/1.0":              {"HTTP/1.0 200 OK\r\nContent-Length: 2", false},
		"length and chunks":     {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nTransfer-Encoding: chunked", false},
		"chunks and length":     {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2", false},
		"two lengths":           {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 2", false},
		"signed length":         {"HTTP/1.1 200 OK\r\nContent-Length: +2", false},
		"other coding":          {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked", false},
		"trailer":               {"HTTP/1.1 200 OK\r\nTrailer: X\r\nTransfer-Encoding: chunked", false},
		"named by Connection":   {"HTTP/1.1 200 OK\r\nConnection: X\r\nContent-Length: 2", false},
		"space before a colon":  {"HTTP/1.1 200 OK\r\nContent-Length : 2", false},
		"continued line":        {"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 2", false},
		"line end in a value":   {"HTTP/1.1 200 OK\r\nX: a\nY: b\r\nContent-Length: 2", false},
		"control byte":          {"HTTP/1.1 200 OK\r\nX: \x00\r\nContent-Length: 2", false},
		"no colon":              {"HTTP/1.1 200 OK\r\nX\r\nContent-Length: 2", false},
		"something before HTTP": {"\r\nHTTP/1.1 200 OK\r\nContent-Length: 2", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)
			if got := readOrdinary(req, &poolConn{}, []byte(tt.head+"\r\n\r\nok")); (got != nil) != tt.want {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// TestOrdinaryAnswersDiffer: what is remembered of one answer is not taken for the
// next.
//
//nolint:bodyclose // there is no connection
func TestOrdinaryAnswersDiffer(t *testing.T) {
	t.Parallel()

	c := &poolConn{}

	for _, want := range []http.Header{
		{"A": {"1"}, "B": {"2"}}, {"A": {"1"}, "B": {"3"}}, {"A": {"1"}}, {"B": {"3"}, "A": {"1", "2"}}, {},
	} {
		want.Set("Content-Length", "0")

		var raw strings.Builder

		_ = want.Write(&raw)

		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", http.NoBody)

		resp := readOrdinary(req, c, []byte("HTTP/1.1 200 OK\r\n"+raw.String()+"\r\n"))
		if resp == nil {
			t.Fatal("left to net/http")
		}

		if diff := cmp.Diff(want, resp.Header); diff != "" {
			t.Error(diff)
		}
	}
}

// FuzzOrdinary compares with net/http what is read without it.
//
//nolint:bodyclose // there is no connection
func FuzzOrdinary(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-y: 1\r\nx-Y:  2 \r\nConnection: Keep-Alive\r\n\r\nok",
		"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n1\r\no\r\n1;x\r\nk\r\n0\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX: y\r\n\r\nnext",
		"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nnext",
	} {
		f.Add([]byte(s), []byte(s))
	}

	f.Fuzz(func(t *testing.T, before, raw []byte) {
		req := &http.Request{Method: http.MethodPost}
		c := &poolConn{}

		readOrdinary(req, c, before)

		got := readOrdinary(req, c, raw)
		if got == nil {
			return
		}

		r := bufio.NewReader(bytes.NewReader(raw))

		want, err := http.ReadResponse(r, req)
		if err != nil {
			t.Fatalf("net/http refuses it: %v", err)
		}

		if got.StatusCode != want.StatusCode || got.ContentLength != want.ContentLength || got.Close != want.Close {
			t.Errorf("got %d, %d bytes, close %v; want %d, %d, %v",
				got.StatusCode, got.ContentLength, got.Close, want.StatusCode, want.ContentLength, want.Close)
		}

		if diff := cmp.Diff(want.Header, got.Header); diff != "" {
			t.Error(diff)
		}

		body, err := io.ReadAll(want.Body)
		gotBody, gotErr := io.ReadAll(got.Body)

		// A trailer that isn't one is an error to net/http only: nobody looks at it.
		if !bytes.Equal(body, gotBody) || err == nil && gotErr != nil {
			t.Errorf("got %q, %v; want %q, %v", gotBody, gotErr, body, err)
		}

		rest, _ := io.ReadAll(r)
		if gotRest, _ := io.ReadAll(c.r); err == nil && !bytes.Equal(rest, gotRest) {
			t.Errorf("left is %q, want %q", gotRest, rest)
		}
	})
}
