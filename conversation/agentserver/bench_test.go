package agentserver_test

import (
	"fmt"
	"log/slog"
	"net/http/httptest"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

// BenchmarkRefresh refreshes a healthy conversation, at an MCP server with few and
// with many tools. The server's share is in it.
func BenchmarkRefresh(b *testing.B) {
	for _, tools := range []int{10, 1000} {
		b.Run(fmt.Sprintf("tools=%d", tools), func(b *testing.B) {
			backend := server.NewMCPServer("backend", "1")
			for i := range tools {
				backend.AddTool(mcp.NewTool(fmt.Sprintf("tool%d", i), mcp.WithString("text", mcp.Required())), nil)
			}
			serving := httptest.NewServer(server.NewStreamableHTTPServer(backend,
				server.WithDisableStreaming(true), server.WithStreamableHTTPLogger(slog.New(slog.DiscardHandler))))
			defer serving.Close()
			s, err := agentserver.New(agentserver.DefaultConfig(), agentserver.Deps{})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			c, _, err := s.Create(b.Context(), agentserver.CreateRequest{
				Servers: []agentserver.MCPServer{{Name: "backend", URL: serving.URL}},
			})
			if err != nil {
				b.Fatal(err)
			}
			if err := c.Start(b.Context()); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := c.RefreshMCPTools(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
