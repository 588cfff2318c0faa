//go:build unix

package e2e

import (
	"bufio"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestFraming sends requests whose end can be read in more than one way. They are
// refused, or the backend gets exactly the one request that the client sent.
func TestFraming(t *testing.T) {
	b := startBackend(t)
	s := startSidecar(t, b)
	c := connect(t, s.url())
	call := func(name string) string {
		return fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":%q}}}`, name)
	}
	chunks := func(body string) string { return fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body) }
	hidden := "POST /mcp HTTP/1.1\r\nHost: " + s.listen + "\r\nMcp-Session-Id: " + c.session +
		"\r\nContent-Length: " + strconv.Itoa(len(call("hidden"))) + "\r\n\r\n" + call("hidden")
	for _, tt := range []struct {
		name, header, body string
		status             int
		runs               int
	}{
		{"chunked", "transfer-ENCODING: Chunked\r\n", chunks(call("x")), 200, 1},
		{"two lengths", fmt.Sprintf("Content-Length: 5\r\nContent-Length: %d\r\n", len(call("x"))), call("x"), 400, 0},
		{"list of lengths", fmt.Sprintf("Content-Length: %d, 5\r\n", len(call("x"))), call("x"), 400, 0},
		{"negative length", "Content-Length: -1\r\n", call("x"), 400, 0},
		{"signed length", fmt.Sprintf("Content-Length: +%d\r\n", len(call("x"))), call("x"), 400, 0},
		{"length and chunked", fmt.Sprintf("Content-Length: %d\r\nTransfer-Encoding: chunked\r\n", len(chunks(call("x")))+len(hidden)), chunks(call("x")) + hidden, 200, 1},
		{"chunked, gzip", "Transfer-Encoding: chunked, gzip\r\n", chunks(call("x")), 501, 0},
		{"gzip, chunked", "Transfer-Encoding: gzip, chunked\r\n", chunks(call("x")), 501, 0},
		{"xchunked", "Transfer-Encoding: xchunked\r\n", chunks(call("x")), 501, 0},
		{"two encodings", "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n", chunks(call("x")), 501, 0},
		{"space before the colon", "Transfer-Encoding : chunked\r\n", chunks(call("x")), 400, 0},
		{"bad chunk", "Transfer-Encoding: chunked\r\n", "zz\r\n" + call("x") + "\r\n0\r\n\r\n", 400, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			before := b.ran("echo")
			conn, err := net.Dial("tcp", s.listen)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(proc.Patience))
			fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\n"+
				"Content-Type: application/json\r\nMcp-Session-Id: %s\r\n%s\r\n%s", s.listen, c.session, tt.header, tt.body)
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()
			body, err := io.ReadAll(resp.Body)
			if err != nil || resp.StatusCode != tt.status {
				t.Errorf("the answer is %d %.200s %v, want %d", resp.StatusCode, body, err, tt.status)
			}
			if n, err := in.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Error("the connection is still open: what follows would be read as a request")
			}
			if n := b.ran("echo") - before; n != tt.runs {
				t.Errorf("%d calls ran, want %d", n, tt.runs)
			}
		})
	}
}

// TestCompressedAnswers: clients get the same events and results from a backend
// that compresses what nobody asked it to compress, and at once.
func TestCompressedAnswers(t *testing.T) {
	t.Parallel()
	var asked atomic.Value // Accept-Encoding of the last request
	finish := make(chan struct{})
	backend := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked.Store(r.Header.Get("Accept-Encoding"))
		switch {
		case strings.Contains(string(body), `"tools/call"`):
			w.Header().Set("Content-Type", "text/event-stream")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			fmt.Fprint(z, ": comment\n\nid: 7\ndata:\n\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\"}\n\n")
			_ = z.Flush()
			_ = http.NewResponseController(w).Flush()
			<-finish
			fmt.Fprint(z, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n")
			_ = z.Close()
		case strings.Contains(string(body), `"ping"`):
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			fmt.Fprint(z, `{"jsonrpc":"2.0","id":1,"result":{"big":12345678901234567890}}`)
			_ = z.Close()
		default:
			http.Error(w, "no", http.StatusUnauthorized)
		}
	}))
	t.Cleanup(backend.Close)
	s := newSidecar(t, "--upstream", backend.URL+"/mcp")
	s.start()
	c := newClient(t, s.url())
	send := func(method string) *http.Response {
		t.Helper()
		r, err := c.request(t.Context(), http.MethodPost, strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"`+method+`","params":{}}`))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Accept-Encoding", "gzip")
		resp, err := c.http.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { resp.Body.Close() })
		if e := resp.Header.Get("Content-Encoding"); resp.StatusCode != http.StatusOK || e != "" {
			t.Fatalf("%s: %d, encoded as %q", method, resp.StatusCode, e)
		}
		return resp
	}

	body, err := io.ReadAll(send("ping").Body) //nolint:bodyclose // at the end of the test
	if want := `{"jsonrpc":"2.0","id":1,"result":{"big":12345678901234567890}}`; err != nil || string(body) != want {
		t.Errorf("the answer is %s %v, want %s", body, err, want)
	}
	if got := asked.Load(); got != "" && got != "identity" {
		t.Errorf("the backend was asked for %v", got)
	}

	in := bufio.NewReader(send("tools/call").Body) //nolint:bodyclose // at the end of the test
	var got strings.Builder
	for !strings.Contains(got.String(), "progress") { // it comes before the backend goes on
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatalf("%v after %q", err, got.String())
		}
		got.WriteString(line)
	}
	close(finish)
	rest, err := io.ReadAll(in)
	if err != nil || !strings.HasPrefix(got.String(), ": comment\n\nid: 7\ndata:\n\n") || !strings.Contains(string(rest), `"result":{}`) {
		t.Errorf("%q, then %q %v", got.String(), rest, err)
	}
}
