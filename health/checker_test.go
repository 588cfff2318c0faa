package health

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/server"
)

// kinds are the ways in which a real server handles sessions.
func kinds() map[string][]server.StreamableHTTPOption {
	return map[string][]server.StreamableHTTPOption{
		"accepts any session": nil,
		"stateful":            {server.WithStateful(true)},
		"stateless":           {server.WithStateLess(true)},
	}
}

func TestCheckerStops(t *testing.T) {
	c, err := New(quick(mustURL(t, "http://127.0.0.1:1/mcp")), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Run(ctx); err != nil {
		t.Error(err)
	}
	if _, err := c.Check(t.Context()); !errors.Is(err, errStopped) {
		t.Errorf("got %v", err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("it runs twice")
	}
	c.Suspect("nobody is there any more")
}

func TestSwapOfARealServer(t *testing.T) {
	for name, opts := range kinds() {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, "127.0.0.1:0", handler(mcpServer("1", "a", "b"), opts...))
			w := watch(t, quick(p.url(t)), Deps{})
			first, n := w.until(0, "settled", settledWith("a", "b"))
			if first.Tools.ServerName != "demo" || first.Tools.ServerVersion != "1" {
				t.Errorf("server is %q %q", first.Tools.ServerName, first.Tools.ServerVersion)
			}
			p.kill()
			away, n := w.until(n, "away", inState(Away))
			if away.Reason != ReasonRefused {
				t.Errorf("away because %q", away.Reason)
			}
			startProcess(t, p.addr, handler(mcpServer("2", "a", "b", "c"), opts...))
			ready, n := w.until(n, "ready", inState(Ready))
			if ready.Epoch != 1 || ready.Swap == nil {
				t.Errorf("ready after the swap is %+v", ready)
			}
			second, _ := w.until(n, "settled", settledWith("a", "b", "c"))
			if second.ChangeCause != ChangeByRestart {
				t.Errorf("change by %q", second.ChangeCause)
			}
			if diff := cmp.Diff([]Change{{Tool: "c", Kind: ChangeAdded}}, second.Changes); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff([]string{CauseRestart}, swaps(w.all())); diff != "" {
				t.Errorf("swaps:\n%s", diff)
			}
		})
	}
}
