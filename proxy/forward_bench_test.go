package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// discardWriter takes an answer and keeps nothing of it.
type discardWriter struct {
	header http.Header
	status int
	n      int
}

func (d *discardWriter) Header() http.Header         { return d.header }
func (d *discardWriter) WriteHeader(status int)      { d.status = status }
func (d *discardWriter) Write(b []byte) (int, error) { d.n += len(b); return len(b), nil }
func (d *discardWriter) Flush()                      {}

func (d *discardWriter) SetReadDeadline(time.Time) error { return nil }

// BenchmarkForward is what a request costs between the client's server and the
// backend: everything but the client's connection.
func BenchmarkForward(b *testing.B) {
	message := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 200) + `"}]}}`
	event := "event: message\ndata: " + message + "\n\n"

	for _, c := range []struct{ name, kind, body string }{
		{"json", "application/json", message},
		{"stream", typeEventStream, event},
		{"100KB", "application/json", strings.Replace(message, "xxx", strings.Repeat("x", 100_000), 1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			url := manyConns(b, http.Header{"Content-Type": {c.kind}}, c.body)
			p := benchProxy(b, strings.TrimSuffix(url, "/mcp"))

			init := httpRequest(b, initBody)
			w := &discardWriter{header: http.Header{}}
			p.ServeHTTP(w, init)

			body := callBody(1, "x")
			req := httpRequest(b, body)
			req.Header.Set("Mcp-Session-Id", w.header.Get("Mcp-Session-Id"))
			req.Header.Set("Mcp-Protocol-Version", "2025-11-25")

			reader := strings.NewReader(body)

			b.ReportAllocs()

			for b.Loop() {
				reader.Reset(body)
				req.Body = io.NopCloser(reader)
				w := &discardWriter{header: make(http.Header, 4)}

				if p.ServeHTTP(w, req); w.status != http.StatusOK || w.n < len(c.body) {
					b.Fatalf("%d with %d bytes", w.status, w.n)
				}
			}
		})
	}
}

func httpRequest(b *testing.B, body string) *http.Request {
	b.Helper()

	req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, "http://127.0.0.1/mcp", bytes.NewReader([]byte(body)))
	if err != nil {
		b.Fatal(err)
	}

	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	req.Header.Set("User-Agent", "bench")

	return req
}

// BenchmarkOwn is what the proxy itself does for a request: no byte passes a socket.
func BenchmarkOwn(b *testing.B) {
	message := `{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"` + strings.Repeat("x", 200) + `"}]}}`
	event := "event: message\ndata: " + message + "\n\n"

	for _, c := range []struct{ name, kind, body string }{
		{"json", "application/json", message},
		{"stream", typeEventStream, event},
		{"1MB", "application/json", strings.Replace(message, "xxx", strings.Repeat("x", 1_000_000), 1)},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := benchProxy(b, "http://127.0.0.1:9")
			conn := &cannedConn{}
			pl := p.own.(*pool) //nolint:errcheck,forcetypeassert // that is what a proxy has

			pl.put(newPoolConn(pl, origin{"http", "127.0.0.1:9"}, conn))

			answer := func(kind, session, body string) []byte {
				return fmt.Appendf(nil, "HTTP/1.1 200 OK\r\nContent-Type: %s\r\n%sContent-Length: %d\r\n\r\n%s", kind, session, len(body), body)
			}

			conn.answer = answer(typeJSON, "Mcp-Session-Id: s\r\n", `{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}`)
			w := &discardWriter{header: http.Header{}}
			p.ServeHTTP(w, httpRequest(b, initBody))

			conn.answer = answer(c.kind, "", c.body)
			body := callBody(1, "x")
			req := httpRequest(b, body)
			req.Header.Set("Mcp-Session-Id", w.header.Get("Mcp-Session-Id"))
			req.Header.Set("Mcp-Protocol-Version", "2025-11-25")

			reader := strings.NewReader(body)

			b.ReportAllocs()

			for b.Loop() {
				reader.Reset(body)
				req.Body = io.NopCloser(reader)
				clear(w.header)
				w.n = 0

				if p.ServeHTTP(w, req); w.status != http.StatusOK || w.n < len(c.body) {
					b.Fatalf("%d with %d bytes", w.status, w.n)
				}
			}
		})
	}
}

// cannedConn gives one and the same answer to whatever is written.
type cannedConn struct {
	net.Conn

	answer, left []byte
}

func (c *cannedConn) Write(b []byte) (int, error) {
	c.left = c.answer
	return len(b), nil
}

func (c *cannedConn) Read(b []byte) (int, error) {
	n := copy(b, c.left)
	c.left = c.left[n:]

	return n, nil
}

func (c *cannedConn) Close() error                { return nil }
func (c *cannedConn) SetDeadline(time.Time) error { return nil }
