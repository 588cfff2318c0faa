package http1

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// After a request that it hasn't read, net/http sleeps for half a second, whatever is
// closed.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("net/http.(*conn).closeWriteAndWait"))
}

// patience is how long a test waits for what must come.
const patience = 20 * time.Second

type anyServer interface {
	Serve(l net.Listener) error
	Shutdown(ctx context.Context) error
	Close() error
}

// serve serves until the end of the test, and returns the address.
func serve(tb testing.TB, s anyServer) string {
	tb.Helper()

	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}

	done := make(chan struct{})

	go func() {
		defer close(done)

		if err := s.Serve(l); err != http.ErrServerClosed { //nolint:errorlint // it is just that
			tb.Errorf("Serve ended with %v", err)
		}
	}()

	tb.Cleanup(func() {
		_ = s.Close()
		<-done
	})

	return l.Addr().String()
}

func start(t *testing.T, std *http.Server) string {
	t.Helper()

	return serve(t, New(t.Context(), std, slog.New(slog.DiscardHandler)))
}

// client is a connection whose bytes a test chooses.
type client struct {
	net.Conn

	t testing.TB
	r *bufio.Reader
}

func dial(tb testing.TB, addr string) *client {
	tb.Helper()

	c, err := net.Dial("tcp", addr)
	if err != nil {
		tb.Fatal(err)
	}

	tb.Cleanup(func() { _ = c.Close() })

	_ = c.SetDeadline(time.Now().Add(patience))

	return &client{Conn: c, t: tb, r: bufio.NewReader(c)}
}

func (c *client) send(s string) {
	c.t.Helper()

	if _, err := io.WriteString(c.Conn, s); err != nil {
		c.t.Fatal(err)
	}
}

// answer is one that a client has got to its end.
type answer struct {
	Status   string
	Code     int
	Proto    string
	Header   http.Header
	Body     string
	Length   int64
	Transfer []string
	Close    bool
}

// answer reads an answer. It fails the test when there is none.
func (c *client) answer(method string) answer {
	c.t.Helper()

	resp, err := http.ReadResponse(c.r, httptest.NewRequest(method, "/", nil))
	if err != nil {
		c.t.Fatalf("no answer: %v", err)
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err != nil {
		c.t.Fatalf("the body of the answer ends with %v after %q", err, body)
	}

	return answer{
		resp.Status, resp.StatusCode, resp.Proto, resp.Header, string(body), resp.ContentLength, resp.TransferEncoding, resp.Close,
	}
}

// closed waits for the end of the connection.
func (c *client) closed() {
	c.t.Helper()

	if b, err := c.r.ReadByte(); err == nil {
		c.t.Fatalf("%q came instead of the end", b)
	} else if ne, ok := err.(net.Error); ok && ne.Timeout() { //nolint:errorlint // it is just that
		c.t.Fatal("the connection stays open")
	}
}

func post(path, body string, fields ...string) string {
	return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Type: text/plain\r\n" + strings.Join(append(fields, ""), "\r\n") +
		"Content-Length: " + strconv.Itoa(len(body)) + "\r\n\r\n" + body
}

func get(path string, fields ...string) string {
	return "GET " + path + " HTTP/1.1\r\nHost: localhost\r\n" + strings.Join(append(fields, ""), "\r\n") + "\r\n"
}
