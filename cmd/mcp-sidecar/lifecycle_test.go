package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/boltstore"
)

func TestStartAndStop(t *testing.T) {
	b := startBackend(t, "add")
	a := newApp(testConfig(t, b.url()), appOptions{})
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := a.start(t.Context()); err == nil {
		t.Error("a second start succeeds")
	}
	for _, name := range []string{"agents", "ops", "admin"} {
		if !strings.HasPrefix(a.addr(name), "127.0.0.1:") {
			t.Errorf("address of %s: %q", name, a.addr(name))
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/startupz"} {
		if code, body := get(t, "http://"+a.addr("ops")+path); code != 200 {
			t.Errorf("%s: %d %s", path, code, body)
		}
	}
	stopApp(t, a)
	stopApp(t, a)
	if err := a.start(t.Context()); err == nil {
		t.Error("a start after the stop succeeds")
	}
	if code, _ := get(t, "http://"+a.addr("ops")+"/livez"); code != 0 {
		t.Error("the ops listener outlives the sidecar")
	}
	select {
	case err := <-a.failed:
		t.Errorf("a runner failed: %v", err)
	default:
	}
}

func TestStopWithoutStart(t *testing.T) {
	a := newApp(testConfig(t, "http://127.0.0.1:1/mcp"), appOptions{})
	stopApp(t, a)
	if err := a.start(t.Context()); err == nil {
		t.Error("a start after the stop succeeds")
	}
}

func TestConcurrentStartAndStop(t *testing.T) {
	b := startBackend(t, "add")
	for range 5 {
		a := newApp(testConfig(t, b.url()), appOptions{})
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { _ = a.start(t.Context()) })
			wg.Go(func() { _ = a.stop(t.Context(), 0) })
		}
		wg.Wait()
		stopApp(t, a)
	}
}

// TestTwoInOneProcess shows that nothing is registered globally.
func TestTwoInOneProcess(t *testing.T) {
	b := startBackend(t, "add")
	first := testApp(t, testConfig(t, b.url()))
	second := testApp(t, testConfig(t, b.url()))
	for _, a := range []*app{first, second} {
		if got := newAgent(t, a, "/mcp").tools(); !strings.Contains(got, `"add"`) {
			t.Errorf("tools: %s", got)
		}
	}
}

// TestListenTransport: agents are served by either server.
func TestListenTransport(t *testing.T) {
	backend := startBackend(t, "tool")
	for value, standard := range map[string]bool{config.ListenOwn: false, config.ListenStandard: true} {
		cfg := testConfig(t, backend.url(), func(c *config.Config) { c.ListenTransport = value })
		a := testApp(t, cfg)
		if _, got := a.agentServer(t.Context(), cfg).(*http.Server); got != standard {
			t.Errorf("%s is the server of net/http: %t", value, got)
		}
		if got := newAgent(t, a, "/mcp").call("tools/call", `{"name":"tool"}`); !strings.Contains(got, "from tool") {
			t.Errorf("%s: %s", value, got)
		}
	}
}

// TestLeaving: a client that keeps its connection while the sidecar stops would
// lose the request that it sends when that is closed.
func TestLeaving(t *testing.T) {
	a := newApp(testConfig(t, "http://127.0.0.1:1/mcp"), appOptions{})
	h := a.leaving(http.NotFoundHandler())
	connection := func(protoMajor int) string {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		r.ProtoMajor = protoMajor
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w.Header().Get("Connection")
	}
	if got := connection(1); got != "" {
		t.Errorf("while it runs: %q", got)
	}
	a.stopping.Store(true)
	if got := connection(1); got != "close" {
		t.Errorf("while it stops: %q", got)
	}
	if got := connection(2); got != "" { // the header has no place in HTTP/2
		t.Errorf("over HTTP/2: %q", got)
	}
}

// TestStopEndsRefreshes has an agent server that never answers: its calls end while the sidecar still serves, not after.
func TestStopEndsRefreshes(t *testing.T) {
	asked, ended := make(chan struct{}, 100), make(chan struct{}, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			asked <- struct{}{}
			<-r.Context().Done()
			ended <- struct{}{}
		}
	}))
	defer srv.Close()
	cfg := testConfig(t, startBackend(t, "add").url(), func(c *config.Config) { c.AgentServer = []string{srv.URL} })
	a := testApp(t, cfg)
	c := adminClient(t, a)
	if _, err := c.Register(t.Context(), "one", admin.Registration{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Refresh(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop(ctx, time.Hour) }()
	<-ended
	if status, body := get(t, "http://"+a.addr("ops")+"/livez"); status != http.StatusOK {
		t.Errorf("/livez: %d %s", status, body)
	}
	cancel()
	if err := <-stopped; err != nil && !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

func TestFailedStartIsUndone(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	badKey := filepath.Join(t.TempDir(), "key")
	writeFile(t, badKey, "too short")

	for name, tt := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"address in use": {
			func(c *config.Config) { c.Listen = taken.Addr().String() },
			taken.Addr().String() + " is in use by another program: stop it, or use another --listen",
		},
		"admin address in use": {
			func(c *config.Config) { c.AdminListen = taken.Addr().String() },
			"use another --admin-listen",
		},
		"session key": {func(c *config.Config) { c.SessionKeyFile = badKey }, "reading the session keys in " + badKey},
		"certificate": {func(c *config.Config) { c.TLSCertFile, c.TLSKeyFile = badKey, badKey }, "see --tls-cert-file"},
		"state":       {func(c *config.Config) { c.State = filepath.Join(c.State, "below", "a", "file") }, "state"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t, "http://127.0.0.1:1/mcp", tt.change)
			a := newApp(cfg, appOptions{})
			err := a.start(t.Context())
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want %q in it", err, tt.want)
			}
			if err != nil && strings.Contains(err.Error(), "too short") {
				t.Errorf("the error shows a key: %v", err)
			}
			for name := range a.addrs {
				l, err := net.Listen("tcp", a.addr(name))
				if err != nil {
					t.Errorf("the address of %s is still taken: %v", name, err)
					continue
				}
				l.Close()
			}
			if name == "state" {
				return
			}
			s, err := boltstore.Open(cfg.State, boltstore.DefaultOptions())
			if err != nil {
				t.Fatalf("the state is still locked: %v", err)
			}
			s.Close()
		})
	}
}

func TestStateInUse(t *testing.T) {
	cfg := testConfig(t, "http://127.0.0.1:1/mcp")
	testApp(t, cfg)
	err := newApp(cfg, appOptions{}).start(t.Context())
	if err == nil || !strings.Contains(err.Error(), cfg.State) {
		t.Errorf("error %v, want the file in it", err)
	}
}

func TestRunnerFailure(t *testing.T) {
	a := testApp(t, testConfig(t, "http://127.0.0.1:1/mcp"))
	a.spawn(t.Context(), "part", func(context.Context) error { return nil })
	if err := <-a.failed; err == nil || err.Error() != "part: it ended by itself" {
		t.Errorf("failure %v", err)
	}
}

func TestCleanupsAllRun(t *testing.T) {
	var order []string
	c := cleanups{log: newApp(nil, appOptions{}).log}
	for _, name := range []string{"a", "b", "c"} {
		c.add(name, func(context.Context) error {
			order = append(order, name)
			if name != "b" {
				return context.DeadlineExceeded
			}
			return nil
		})
	}
	err := c.run(t.Context())
	if got := strings.Join(order, ""); got != "cba" {
		t.Errorf("order %s", got)
	}
	if err == nil || err.Error() != "stopping c: context deadline exceeded\nstopping a: context deadline exceeded" {
		t.Errorf("error %v", err)
	}
	if err := c.run(t.Context()); err != nil {
		t.Errorf("again: %v", err)
	}
}
