//go:build unix

// Package gosdk replaces the backend under clients of the official Go SDK. It is
// a module of its own, so that the SDK is no dependency of the sidecar.
package gosdk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// bin is where TestMain puts the commands.
var bin string

func TestMain(m *testing.M) {
	proc.Main(m, func(ctx context.Context, dir string) error {
		bin = dir
		// From the sidecar's own module, with the versions that it is made with.
		if err := os.Chdir("../.."); err != nil {
			return err
		}
		return proc.Build(ctx, dir, proc.Sidecar, proc.Testbackend)
	}, nil)
}

// TestSwap kills the backend again and again under ten clients that call a tool
// all the time. They list the tools when they are told of new ones.
func TestSwap(t *testing.T) {
	for name, protocol := range map[string]string{
		"sessions": "2025-11-25", // told on the GET stream
		"newest":   "",           // told on a stream that the client asks for
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			testSwap(t, protocol)
		})
	}
}

func testSwap(t *testing.T, protocol string) {
	t.Helper()
	backend, sidecar := proc.ReserveAddr(t), proc.ReserveAddr(t)
	start := func(version string) *proc.Process {
		p := proc.Start(t, filepath.Join(bin, "testbackend"), "-listen", backend, "-version", version)
		p.Addr()
		return p
	}
	running := start("v1")
	proc.Start(t, filepath.Join(bin, "mcp-sidecar"), "run", "--upstream", "http://"+backend+"/mcp", "--listen", sidecar,
		"--ops-listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--state", filepath.Join(t.TempDir(), "state.db"))
	proc.WaitListening(t, sidecar)

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var wg sync.WaitGroup
	clients := make([]*client, 10)
	for i := range clients {
		clients[i] = connect(t, "http://"+sidecar+"/mcp", protocol)
	}
	for i, c := range clients {
		wg.Go(func() { c.work(ctx, i) })
	}
	everybody := func(what string, ok func(*client) bool) {
		t.Helper()
		proc.Eventually(t, what, func() bool {
			for _, c := range clients {
				if err := c.err.Load(); err != nil {
					t.Fatalf("a client failed: %v", *err)
				}
				if !ok(c) {
					return false
				}
			}
			return true
		})
	}

	told := int64(0)
	for _, step := range []struct {
		version string
		away    time.Duration
		tool    string // that only this version has; "": nothing changes
	}{
		{"v1", time.Second, ""},
		{"v2", time.Second, "multiply"},
		{"v2", 5 * time.Second, ""},
		{"v1", 5 * time.Second, "count"},
	} {
		running.Kill()
		<-time.After(step.away)
		running = start(step.version)
		if step.tool != "" {
			told++
			everybody("every client to list the new tools", func(c *client) bool { return c.lists(step.tool) })
		}
		goals := map[*client]int64{}
		for _, c := range clients {
			goals[c] = c.calls.Load() + 2
		}
		everybody("calls of the clients", func(c *client) bool { return c.calls.Load() >= goals[c] })
	}
	stop()
	wg.Wait()
	for i, c := range clients {
		if err := c.err.Load(); err != nil {
			t.Errorf("client %d: %v", i, *err)
		}
		if n := c.told.Load(); n != told {
			t.Errorf("client %d was told %d times of new tools, want %d", i, n, told)
		}
		if err := c.session.Close(); err != nil {
			t.Errorf("closing client %d: %v", i, err)
		}
	}
}

// client is a client of the SDK, and what became of it.
type client struct {
	session            *mcp.ClientSession
	told, calls, asked atomic.Int64
	err                atomic.Pointer[error] // the first
	tools              atomic.Pointer[[]string]
}

func connect(t *testing.T, url, protocol string) *client {
	t.Helper()
	c := &client{}
	sdk := mcp.NewClient(&mcp.Implementation{Name: "gosdk", Version: "1"}, &mcp.ClientOptions{
		ToolListChangedHandler: func(context.Context, *mcp.ToolListChangedRequest) { c.told.Add(1) },
	})
	session, err := sdk.Connect(context.WithoutCancel(t.Context()), &mcp.StreamableClientTransport{Endpoint: url},
		&mcp.ClientSessionOptions{ProtocolVersion: protocol})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() }) // again, which is harmless
	c.session = session
	return c
}

func (c *client) failed(err error) { c.err.CompareAndSwap(nil, &err) }

// work calls a tool that only reads until ctx ends, and lists the tools whenever
// they are told to have changed. What has begun is finished.
func (c *client) work(ctx context.Context, number int) {
	running := context.WithoutCancel(ctx)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if told := c.told.Load(); n == 0 || told != c.asked.Load() {
			c.asked.Store(told)
			names := []string{}
			for tool, err := range c.session.Tools(running, nil) {
				if err != nil {
					c.failed(fmt.Errorf("listing: %w", err))
					return
				}
				names = append(names, tool.Name)
			}
			c.tools.Store(&names)
		}
		account := fmt.Sprintf("%d-%d", number, n)
		result, err := c.session.CallTool(running, &mcp.CallToolParams{Name: "balance", Arguments: map[string]any{"account": account}})
		if err == nil {
			text, ok := result.Content[0].(*mcp.TextContent)
			if result.IsError || !ok || text.Text != fmt.Sprintf(`{"account":%q}`, account) {
				err = errors.New("the answer is another one's")
			}
		}
		if err != nil {
			c.failed(fmt.Errorf("call %d: %w", n, err))
			return
		}
		c.calls.Add(1)
		timer.Reset(40 * time.Millisecond)
	}
}

// lists tells whether the client's newest list has a tool.
func (c *client) lists(tool string) bool {
	names := c.tools.Load()
	return names != nil && slices.Contains(*names, tool)
}
