package stdio

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

// TestMCPGo lets a client of mcp-go talk to a stdio server of mcp-go.
func TestMCPGo(t *testing.T) {
	for _, tt := range []struct {
		name   string
		shared bool
	}{{"own process", false}, {"shared process", true}} {
		t.Run(tt.name, func(t *testing.T) {
			cfg := testConfig(t, "mcp-go")
			cfg.Shared = tt.shared
			f := start(t, cfg)

			c, err := client.NewStreamableHttpClient("http://stdio.invalid/mcp", transport.WithHTTPBasicClient(&http.Client{Transport: f}),
				transport.WithContinuousListening()) //nolint:staticcheck // deprecated with the revisions that have sessions
			if err != nil {
				t.Fatal(err)
			}

			defer func() { _ = c.Close() }()

			var progress atomic.Int64

			c.OnNotification(func(n mcp.JSONRPCNotification) {
				if n.Method == methodProgress {
					progress.Add(1)
				}
			})

			if err := c.Start(t.Context()); err != nil {
				t.Fatal(err)
			}

			var init mcp.InitializeRequest

			init.Params.ProtocolVersion = "2025-11-25"

			if _, err := c.Initialize(t.Context(), init); err != nil {
				t.Fatal(err)
			}

			tools, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
			if err != nil || len(tools.Tools) != 1 {
				t.Fatal(tools, err)
			}

			var call mcp.CallToolRequest

			call.Params.Name = "greet"
			call.Params.Arguments = map[string]string{"name": "Ada"}
			call.Params.Meta = &mcp.Meta{ProgressToken: "token"}

			result, err := c.CallTool(t.Context(), call)
			if err != nil {
				t.Fatal(err)
			}

			if got := mcp.GetTextFromContent(result.Content[0]); got != "hello Ada" {
				t.Errorf("got %q", got)
			}

			// This server's notifications may come after the answer, when a shared
			// process has nobody left to tell.
			eventually(t, "progress", func() bool { return tt.shared || progress.Load() == 3 })
		})
	}
}
