package health

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"testing"
	"time"
)

// BenchmarkSwapKnown measures the time from the moment that a new process listens until the swap, and its tools, are known,
// after half a second without a process.
func BenchmarkSwapKnown(b *testing.B) {
	serve := func(addr string) *http.Server {
		ln, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", addr)
		if err != nil {
			b.Fatal(err)
		}
		srv := &http.Server{Addr: ln.Addr().String(), Handler: handler(mcpServer("1", "a", "b", "c")), ReadHeaderTimeout: time.Minute}
		go func() { _ = srv.Serve(ln) }()
		return srv
	}
	srv := serve("127.0.0.1:0")
	events := make(chan Event, 100)
	cfg := DefaultConfig()
	cfg.Server, cfg.URL = "demo", &url.URL{Scheme: "http", Host: srv.Addr, Path: "/mcp"}
	c, err := New(cfg, Deps{Notify: func(e Event) { events <- e }})
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Run(ctx)
	}()
	until := func(s State) time.Time {
		for e := range events {
			if e.State == s {
				break
			}
		}
		return time.Now()
	}
	until(Settled)
	var away, ready, settled time.Duration
	n := 0
	for b.Loop() {
		ended := time.Now()
		_ = srv.Close()
		away += until(Away).Sub(ended)
		time.Sleep(500 * time.Millisecond)
		began := time.Now()
		srv = serve(srv.Addr)
		ready += until(Ready).Sub(began)
		settled += until(Settled).Sub(began)
		n++
	}
	b.ReportMetric(float64(away.Microseconds())/float64(n)/1000, "ms/away")
	b.ReportMetric(float64(ready.Microseconds())/float64(n)/1000, "ms/known")
	b.ReportMetric(float64(settled.Microseconds())/float64(n)/1000, "ms/settled")
	cancel()
	<-done
	_ = srv.Close()
}
