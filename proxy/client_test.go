package proxy

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	mcptransport "github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// TestRealClient: a client that knows nothing of swaps goes through three of them.
func TestRealClient(t *testing.T) {
	r := newRig(t)
	r.backend.start(mcpServer([]string{"tool-1"}, mcpserver.WithStateful(true)))

	//nolint:staticcheck // clients of the revisions with sessions still listen so
	c, err := client.NewStreamableHttpClient(r.front.URL+"/mcp", mcptransport.WithContinuousListening())
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = c.Close() }()

	var changed atomic.Int32

	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == methodListChanged {
			changed.Add(1)
		}
	})

	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	var init mcp.InitializeRequest

	init.Params.ProtocolVersion = "2025-06-18"
	init.Params.ClientInfo = mcp.Implementation{Name: "test", Version: "1"}

	if _, err := c.Initialize(t.Context(), init); err != nil {
		t.Fatal(err)
	}

	for round, name := range []string{"tool-1", "tool-2", "tool-3", "tool-4"} {
		if round > 0 {
			r.swap(mcpServer([]string{name}, mcpserver.WithStateful(true)))
		}

		var call mcp.CallToolRequest

		call.Params.Name = name

		result, err := c.CallTool(t.Context(), call)
		if err != nil || len(result.Content) == 0 {
			t.Fatalf("round %d: %v", round, err)
		}

		if text, ok := result.Content[0].(mcp.TextContent); !ok || !strings.Contains(text.Text, "ran "+name) {
			t.Errorf("round %d: %v", round, result.Content)
		}

		tools, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
		if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != name {
			t.Errorf("round %d: %v %v", round, tools, err)
		}

		eventually(t, "the client was told", func() error {
			if n := changed.Load(); round > 0 && n == 0 {
				return errors.New("it wasn't")
			}

			return nil
		})
		changed.Store(0)
	}
}
