//go:build soak && unix

package soak

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestSoak lets everything run for a while, and compares what the sidecar needs
// early on with what it needs in the end.
func TestSoak(t *testing.T) {
	d := duration(t)
	// Each fifth of the time sees several swaps, and sessions that were abandoned
	// in it are let go in it.
	between, idle := min(15*time.Second, d/10), min(20*time.Second, d/10)
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPost {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		http.NotFound(w, r)
	}))
	t.Cleanup(agent.Close)

	b := &backend{t: t, addr: proc.ReserveAddr(t)}
	b.start("v1")
	listen, ops, control := proc.ReserveAddr(t), proc.ReserveAddr(t), proc.ReserveAddr(t)
	config := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(config, []byte("sessionIdle: "+idle.String()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := proc.Start(t, sidecarPath, "run", "--config", config, "--upstream", "http://"+b.addr+"/mcp", "--agent-server", agent.URL,
		"--listen", listen, "--ops-listen", ops, "--admin-listen", control, "--state", filepath.Join(t.TempDir(), "state.db"), "--log-level", "warn")
	proc.WaitListening(t, listen)
	api, err := admin.NewClient(control, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)

	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	c := newCrowd(listen, api)
	var wg sync.WaitGroup
	c.start(ctx, &wg)
	all := &samples{}
	wg.Go(func() { all.take(ctx, t, ops, max(d/300, 500*time.Millisecond)) })

	swaps := b.replace(ctx, between)
	wg.Wait()
	c.close()
	if t.Failed() {
		return
	}
	select {
	case <-s.Done():
		t.Fatal("the sidecar ended")
	default:
	}
	server, err := api.Servers(t.Context())
	if err != nil || len(server) != 1 || server[0].Swaps+2 < uint64(swaps) {
		t.Errorf("of %d swaps the sidecar saw: %+v, %v", swaps, server, err)
	}
	t.Logf("%v, %d swaps: %s", d, swaps, c.summary())
	all.judge(t, d, float64(c.sessions.Load()))
	// A call that was under way when its process was killed may fail.
	if failed, answered := c.failed.Load(), c.answered.Load(); answered == 0 || failed*20 > answered {
		t.Error("too many requests failed")
	}
}

// backend is an address with one process after the other.
type backend struct {
	t    *testing.T
	addr string
	p    *proc.Process
}

func (b *backend) start(version string) {
	b.t.Helper()
	b.p = proc.Start(b.t, backendPath, "-listen", b.addr, "-version", version)
	b.p.Addr()
}

// replace replaces the process until ctx ends: every other time with the same
// tools. It returns how often it did.
func (b *backend) replace(ctx context.Context, every time.Duration) (swaps int) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return swaps
		case <-tick.C:
		}
		b.p.Kill()
		swaps++
		b.start([]string{"v1", "v1b", "v2", "v2"}[swaps%4])
	}
}

func (c *crowd) summary() string {
	last := "none"
	if text := c.lastFailure.Load(); text != nil {
		last = *text
	}
	return fmt.Sprintf("%d requests answered and %d failed, %d sessions, %d streams, %d conversations; last failure: %s",
		c.answered.Load(), c.failed.Load(), c.sessions.Load(), c.streams.Load(), c.conversations.Load(), last)
}
