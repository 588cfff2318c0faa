package main

import (
	"context"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// supervised runs a sidecar as the command does.
type supervised struct {
	*app
	signals chan os.Signal
	ended   chan error
	logs    *logs
}

func startSupervised(t *testing.T, cfg *config.Config, o appOptions) *supervised {
	t.Helper()
	s := &supervised{signals: make(chan os.Signal, 4), ended: make(chan error, 1), logs: &logs{}}
	o.Logger = s.logs.logger()
	s.app = newApp(cfg, o)
	go func() { s.ended <- supervise(t.Context(), s.app, s.signals) }()
	eventually(t, "started", func() bool { return s.running.Load() })
	return s
}

func (s *supervised) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-s.ended:
		return err
	case <-time.After(deadline):
		t.Fatal("the sidecar doesn't end")
		return nil
	}
}

// TestTerminate: not ready at once, new requests are served during the delay,
// running calls finish, streams end, and nobody waits for the limit.
func TestTerminate(t *testing.T) {
	b := startBackend(t, "add", "slow")
	s := startSupervised(t, testConfig(t, b.url(), func(c *config.Config) {
		c.DrainDelay, c.DrainTimeout = 3*time.Second, time.Hour
	}), appOptions{})
	g := newAgent(t, s.app, "/mcp")
	g.tools()

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, g.url, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Mcp-Session-Id", g.session)
	stream, err := g.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()

	slow := make(chan string, 1)
	go func() { slow <- g.call("tools/call", `{"name":"slow"}`) }()
	eventually(t, "the slow call runs", func() bool {
		_, metrics := get(t, "http://"+s.addr("ops")+"/metrics")
		return strings.Contains(metrics, `mcp_sidecar_proxy_requests_in_flight{server="default"} 1`)
	})
	s.signals <- syscall.SIGTERM
	eventually(t, "not ready", func() bool {
		code, body := get(t, "http://"+s.addr("ops")+"/readyz")
		return code == 503 && strings.Contains(body, "stopping")
	})
	if code, body := get(t, "http://"+s.addr("ops")+"/livez"); code != 200 {
		t.Errorf("liveness: %d %s", code, body)
	}
	if got := newAgent(t, s.app, "/mcp").call("tools/call", `{"name":"add"}`); !strings.Contains(got, "from add") {
		t.Errorf("new request during the delay: %s", got)
	}
	if err := s.wait(t); err != nil {
		t.Errorf("end: %v", err)
	}
	if got := <-slow; !strings.Contains(got, "from slow") {
		t.Errorf("running call: %s", got)
	}
	if strings.Contains(s.logs.String(), "cut off") {
		t.Errorf("calls were cut off:\n%s", s.logs)
	}
}

// TestSecondSignal doesn't wait for anything.
func TestSecondSignal(t *testing.T) {
	s := startSupervised(t, testConfig(t, "http://127.0.0.1:1/mcp", func(c *config.Config) { c.DrainDelay = time.Hour }), appOptions{})
	s.signals <- syscall.SIGTERM
	eventually(t, "stopping", s.stopping.Load)
	s.signals <- os.Interrupt
	if err := s.wait(t); err == nil || !strings.Contains(err.Error(), "second signal") {
		t.Errorf("end: %v", err)
	}
	stopApp(t, s.app) // the process is gone then; here its end has to be awaited
}

func TestInterruptHasNoDelay(t *testing.T) {
	s := startSupervised(t, testConfig(t, "http://127.0.0.1:1/mcp", func(c *config.Config) { c.DrainDelay = time.Hour }), appOptions{})
	s.signals <- os.Interrupt
	if err := s.wait(t); err != nil {
		t.Errorf("end: %v", err)
	}
}

func TestFailureEndsTheSidecar(t *testing.T) {
	s := startSupervised(t, testConfig(t, "http://127.0.0.1:1/mcp"), appOptions{})
	s.failed <- context.DeadlineExceeded
	if err := s.wait(t); err == nil || !strings.Contains(err.Error(), "deadline exceeded") {
		t.Errorf("end: %v", err)
	}
}

func TestQuiesce(t *testing.T) {
	b := startBackend(t, "add")
	a := testApp(t, testConfig(t, b.url()))
	c := adminClient(t, a)
	eventually(t, "settled", func() bool { return theServer(t, c).State == "settled" })
	for range 2 {
		if err := c.Quiesce(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if code, body := get(t, "http://"+a.addr("ops")+"/readyz"); code != 503 || !strings.Contains(body, "quiescing") {
		t.Errorf("readiness: %d %s", code, body)
	}
	if got := newAgent(t, a, "/mcp").tools(); !strings.Contains(got, `"add"`) {
		t.Errorf("traffic stopped: %s", got)
	}
	b.stop()
	if _, metrics := get(t, "http://"+a.addr("ops")+"/metrics"); !strings.Contains(metrics, "mcp_sidecar_quiescing 1") {
		t.Error("the metric doesn't tell")
	}
	if s := theServer(t, c); s.State != "settled" || s.Swaps != 0 {
		t.Errorf("detection goes on: %+v", s)
	}
}
