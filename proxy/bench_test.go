package proxy

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// echo answers every call at once.
func echo() http.Handler {
	s := &stub{}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Method == methodCall {
			s.result(w, m, `{"content":[{"type":"text","text":"`+strings.Repeat("x", 200)+`"}]}`)
		}

		return m.Method == methodCall
	}

	return s
}

func benchProxy(b *testing.B, upstream string) *Proxy {
	b.Helper()

	u, err := url.Parse(upstream + "/mcp")
	if err != nil {
		b.Fatal(err)
	}

	keys, err := NewKeyring(NewKey())
	if err != nil {
		b.Fatal(err)
	}

	cfg := DefaultConfig()
	cfg.Servers = []Server{DefaultServer(u)}

	p, err := New(cfg, Deps{Keys: keys})
	if err != nil {
		b.Fatal(err)
	}

	return p
}

// session begins a session at a front.
func benchSession(b *testing.B, c *http.Client, front string) string {
	b.Helper()

	resp, err := c.Do(benchRequest(b.Context(), http.MethodPost, front, "", initBody))
	if err != nil {
		b.Fatal(err)
	}
	defer resp.Body.Close()

	_, _ = io.Copy(io.Discard, resp.Body)

	return resp.Header.Get("Mcp-Session-Id")
}

func benchRequest(ctx context.Context, method, front, session, body string) *http.Request {
	req, err := http.NewRequestWithContext(ctx, method, front+"/mcp", strings.NewReader(body))
	if err != nil {
		panic(err)
	}

	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")

	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}

	return req
}

// BenchmarkCall compares a proxied tools/call with a direct one and with a bare
// httputil.ReverseProxy.
func BenchmarkCall(b *testing.B) {
	back := httptest.NewServer(echo())
	defer back.Close()

	u, err := url.Parse(back.URL)
	if err != nil {
		b.Fatal(err)
	}

	reverse := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport: &http.Transport{MaxIdleConnsPerHost: idlePerHost},
	})
	defer reverse.Close()

	sidecar := httptest.NewServer(benchProxy(b, back.URL))
	defer sidecar.Close()

	for _, c := range []struct{ name, url string }{{"direct", back.URL}, {"reverse", reverse.URL}, {"sidecar", sidecar.URL}} {
		b.Run(c.name, func(b *testing.B) {
			client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 100}}
			defer client.CloseIdleConnections()

			id := benchSession(b, client, c.url)
			body := callBody(1, "x")

			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					resp, err := client.Do(benchRequest(b.Context(), http.MethodPost, c.url, id, body))
					if err != nil {
						b.Error(err)
						return
					}

					_, _ = io.Copy(io.Discard, resp.Body)
					_ = resp.Body.Close()

					if resp.StatusCode != http.StatusOK {
						b.Error(resp.Status)
					}
				}
			})
		})
	}
}

// BenchmarkIdleStreams reports what a session with an open stream takes. Client
// and backend are in the same process: what they take without the proxy is taken
// off.
func BenchmarkIdleStreams(b *testing.B) {
	const n = 500

	st := &streams{}
	back := httptest.NewServer(&stub{get: st.get})
	defer back.Close()

	sidecar := httptest.NewServer(benchProxy(b, back.URL))
	defer sidecar.Close()

	open := func(front string) (bytes float64) {
		client := &http.Client{Transport: &http.Transport{}}
		defer client.CloseIdleConnections()

		before := memory()
		ctx, cancel := context.WithCancel(b.Context())

		var wg sync.WaitGroup

		for range n {
			id := benchSession(b, client, front)

			resp, err := client.Do(benchRequest(ctx, http.MethodGet, front, id, ""))
			if err != nil {
				b.Fatal(err)
			}

			wg.Go(func() {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			})
		}

		after := memory()

		cancel()
		wg.Wait()

		return float64(after-before) / n
	}

	open(back.URL) // what is kept for later is not counted

	for b.Loop() {
		direct := open(back.URL)
		b.ReportMetric((open(sidecar.URL)-direct)/1024, "KiB/stream")
	}
}

// memory is what is in use, stacks included.
func memory() int64 {
	runtime.GC()
	runtime.GC()

	var m runtime.MemStats

	runtime.ReadMemStats(&m)

	return int64(m.HeapAlloc + m.StackInuse)
}
