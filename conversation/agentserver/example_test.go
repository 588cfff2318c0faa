package agentserver_test

import (
	"context"
	"fmt"
	"net/http/httptest"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

// refresher is all that code needs which keeps the tools of conversations fresh,
// be they in the same process or at an agent server elsewhere.
type refresher interface {
	RefreshMCPTools(ctx context.Context) error
}

var (
	_ refresher = (*agentserver.Conversation)(nil)
	_ refresher = (*agentserver.RemoteConversation)(nil)
)

func Example() {
	ctx := context.Background()
	tools := server.NewMCPServer("tools", "1")
	tools.AddTool(mcp.NewTool("add"), nil)
	backend := httptest.NewServer(server.NewStreamableHTTPServer(tools, server.WithDisableStreaming(true)))
	defer backend.Close()

	agents, err := agentserver.New(agentserver.DefaultConfig(), agentserver.Deps{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer agents.Close()
	conversation, _, err := agents.Create(ctx, agentserver.CreateRequest{
		Servers: []agentserver.MCPServer{{Name: "backend", URL: backend.URL + "/mcp"}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, tool := range []string{"subtract", "multiply"} {
		fmt.Println("refreshing")
		if err := conversation.RefreshMCPTools(ctx); err != nil {
			fmt.Println(err)
		}
		for _, offered := range conversation.Tools() {
			fmt.Println("offered:", offered.Name)
		}
		tools.AddTool(mcp.NewTool(tool), nil)
	}
	// Output:
	// refreshing
	// offered: add
	// refreshing
	// offered: add
	// offered: subtract
}
