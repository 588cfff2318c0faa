package proxy

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
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
