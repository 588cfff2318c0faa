package http1

import (
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkRequest is one small call on a kept connection, and its answer.
func BenchmarkRequest(b *testing.B) {
	std := func() *http.Server {
		return &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", "2")
			_, _ = io.WriteString(w, "{}")
		})}
	}

	for name, s := range map[string]anyServer{"http1": New(b.Context(), std(), slog.New(slog.DiscardHandler)), "net-http": std()} {
		b.Run(name, func(b *testing.B) {
			c := dial(b, serve(b, s))
			call := post("/mcp", strings.Repeat("x", 200), "Accept: application/json, text/event-stream", "Mcp-Session-Id: "+strings.Repeat("s", 100))

			b.ReportAllocs()

			for b.Loop() {
				c.send(call)
				c.answer(http.MethodPost)
			}
		})
	}
}

// BenchmarkHead is the reading of a head like the one before.
func BenchmarkHead(b *testing.B) {
	var (
		h   heads
		req http.Request
	)

	b.ReportAllocs()

	for b.Loop() {
		if !h.read([]byte(ordinary), &req) {
			b.Fatal("not read")
		}
	}
}
