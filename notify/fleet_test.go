package notify

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// dialTo makes real clients for the harness, of the given URLs by agent server,
// and with a key and a query that must not show anywhere.
func (h *harness) dialTo(urls map[string]string) dialer {
	for i := range h.servers {
		h.servers[i].URL = mustURL(h.t, urls[h.servers[i].Name]+"?token=canary-query")
		h.servers[i].APIKey = func() (string, error) { return "canary-key", nil }
	}

	return func(s AgentServer, m *clientMetrics) refresher { return newClient(s, m) }
}

// eventually waits until a condition holds.
func eventually(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for !holds() {
		if time.Now().After(deadline) {
			tb.Fatalf("still not so: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func exposition(tb testing.TB, g prometheus.Gatherer) string {
	tb.Helper()
	families, err := g.Gather()
	if err != nil {
		tb.Fatal(err)
	}
	var b strings.Builder
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			tb.Fatal(err)
		}
	}

	return b.String()
}

// TestFiftyAgentServers refreshes a thousand conversations while three agent servers are dead, one hangs and one wants to be
// left alone. Those come back later; then there are ten more generations.
func TestFiftyAgentServers(t *testing.T) {
	if testing.Short() {
		t.Skip("takes its time")
	}
	const perServer, dead, hanging, busy, well = 20, 3, 1, 1, 45
	var names []string
	for i := range dead + hanging + busy + well {
		names = append(names, fmt.Sprintf("agent-%02d", i))
	}
	h := newHarness(t, names...)
	urls := map[string]string{}
	var good, away atomic.Int64
	recovered := make(chan struct{})
	comeBack := sync.OnceFunc(func() { close(recovered) })
	t.Cleanup(comeBack)
	for i, name := range names {
		srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			isWell := i >= dead+hanging+busy
			select {
			case <-recovered:
				isWell = true
			default:
			}
			switch {
			case isWell:
				good.Add(1)
				w.WriteHeader(http.StatusOK)
			case i < dead:
				away.Add(1)
				panic(http.ErrAbortHandler)
			case i < dead+hanging:
				select {
				case <-r.Context().Done():
				case <-recovered:
				}
			default:
				w.Header().Set("Retry-After", "8")
				status(http.StatusServiceUnavailable, `{"exception":"503: key `+r.Header.Get(keyHeader)+`"}`)(w, r)
			}
		}))
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		t.Cleanup(srv.Close)
		urls[name] = srv.URL
	}
	ids := map[string][]conversation.ID{}
	for _, name := range names {
		ids[name] = h.add(name, perServer)
	}
	h.cfg.Concurrency = 32
	h.cfg.CallTimeout = 20 * time.Second
	h.cfg.ParkInterval = 2 * time.Second
	h.cfg.ShutdownTimeout = 100 * time.Millisecond
	h.settle("default")
	defer h.runWith(h.dialTo(urls))()

	current := func(names []string) int {
		n := 0
		for _, name := range names {
			n += h.states(ids[name])[conversation.StateCurrent]
		}

		return n
	}
	eventually(t, "all conversations of the agent servers that are well are current", func() bool {
		return current(names[dead+hanging+busy:]) == well*perServer
	})
	if n := good.Load(); n != well*perServer {
		t.Errorf("%d calls for %d conversations", n, well*perServer)
	}
	left := names[dead+hanging]
	eventually(t, "the conversations of the others failed or wait", func() bool {
		return h.states(ids[names[0]])[conversation.StateParked] > 0 && h.failures(left, ReasonServerError) >= perServer
	})
	for _, id := range ids[left] {
		v := h.get(id)
		if v.LastError == nil || v.NextAttempt.Sub(v.LastError.At) < 4*time.Second || strings.Contains(v.LastError.Message, "canary") {
			t.Errorf("%s: next attempt at %v after %+v", id, v.NextAttempt, v.LastError)
		}
	}
	if n := away.Load(); n > dead*perServer {
		t.Errorf("%d calls of agent servers that are dead", n)
	}
	assertNoCanary(t, h)

	comeBack()
	all := len(names) * perServer
	eventually(t, "the conversations of the others are current too", func() bool { return current(names) == all })
	var heap [10]uint64
	for i := range heap {
		before := good.Load()
		h.settle("default")
		eventually(t, "all conversations have the next generation", func() bool { return current(names) == all })
		if n := good.Load() - before; n != int64(all) {
			t.Errorf("%d calls for %d conversations", n, all)
		}
		h.forget()
		heap[i] = liveHeap()
	}
	if heap[9] > heap[1]+heap[1]/4 {
		t.Errorf("the heap grew: %d bytes after each generation", heap)
	}
}

// liveHeap returns the size of what is in use.
func liveHeap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)

	return m.HeapAlloc
}

// assertNoCanary looks for secrets in everything that people see.
func assertNoCanary(tb testing.TB, h *harness) {
	tb.Helper()
	h.mu.Lock()
	events := fmt.Sprintf("%+v", h.events)
	h.mu.Unlock()
	for what, text := range map[string]string{
		"log": h.logs.String(), "metrics": exposition(tb, h.gatherer), "events": events,
	} {
		if i := strings.Index(text, "canary"); i >= 0 {
			tb.Errorf("a secret is in the %s: %s", what, text[max(0, i-200):min(len(text), i+100)])
		}
	}
}

// TestSecretsStayInside fails in every way that a server can make it fail.
func TestSecretsStayInside(t *testing.T) {
	h := newHarness(t, "a")
	closed := httptest.NewServer(nil)
	closed.Close()
	f := newFakeAgentServer(t)
	answers := []func(http.ResponseWriter, *http.Request){
		status(500, `{"exception":"Client error for url 'http://x/mcp?token=canary-query' with canary-key"}`),
		status(422, `{"detail":[{"input":{"headers":{"Authorization":"Bearer canary-token"}}}]}`),
		status(400, "canary-key is wrong"),
		status(401, `{"detail":"canary-key"}`),
		status(404, `{"detail":"canary-key"}`),
		status(409, `{"detail":"Mcp-Session-Id: canary-session"}`),
		status(503, "<html>canary-key</html>"),
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, closed.URL+"/canary-path?x=canary-query", http.StatusTemporaryRedirect)
		},
		func(w http.ResponseWriter, _ *http.Request) {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err == nil {
				fmt.Fprint(conn, "HTTP/9.9 canary-key\r\n\r\n")
				conn.Close()
			}
		},
	}
	for i, id := range h.add("a", len(answers)) {
		f.on("POST /api/conversations/"+string(id)+"/refresh_mcp_tools", answers[i])
	}
	h.cfg.BackoffMin = time.Millisecond
	h.settle("default")
	defer h.runWith(h.dialTo(map[string]string{"a": f.URL}))()
	eventually(t, "everything was tried", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()

		return len(h.events) >= 2*len(answers)
	})
	assertNoCanary(t, h)
	page, err := h.registry.List(conversation.Query{})
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range page.Items {
		if v.LastError != nil && strings.Contains(v.LastError.Message, "canary") {
			t.Errorf("a secret is in the record: %s", v.LastError.Message)
		}
	}
}

// BenchmarkReconcile measures how long a new generation takes to reach every
// conversation, with agent servers on loopback that answer at once.
func BenchmarkReconcile(b *testing.B) {
	for _, n := range []int{10, 1_000, 10_000} {
		b.Run(fmt.Sprintf("conversations=%d", n), func(b *testing.B) {
			srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprint(w, `{"success":true}`)
			}))
			defer srv.Close()
			h := newHarness(b, "a")
			h.deps.Logger, h.deps.OnEvent = nil, nil
			h.add("a", n)
			stop := h.runWith(h.dialTo(map[string]string{"a": srv.URL}))
			defer stop()
			b.ReportAllocs()
			want := 0
			for b.Loop() {
				want += n
				h.settle("default")
				for h.result(ResultSuccess) != float64(want) {
					time.Sleep(time.Millisecond)
				}
			}
			b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "refreshes/s")
		})
	}
}
