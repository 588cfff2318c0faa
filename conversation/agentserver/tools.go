package agentserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/mark3labs/mcp-go/mcp"
)

// Tool is a tool that a conversation offers to its agent.
type Tool struct {
	// Name is the name under which the agent calls it: with the server's name
	// and "_" before it where the conversation has several servers.
	Name        string          `json:"name"`
	Server      string          `json:"server,omitempty"` // "" for a local tool
	Description string          `json:"description,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"`
	// Definition is the whole tool as its server sent it, under its own name.
	Definition json.RawMessage `json:"-"`
}

// LocalTool is a tool that the agent itself brings.
type LocalTool struct {
	Tool Tool
	// Call runs it; args are what the agent gave to CallTool.
	Call func(ctx context.Context, args any) (*mcp.CallToolResult, error)
}

// remoteTool is a tool of a client, with the name that the server knows it by.
type remoteTool struct {
	Tool
	original string
}

// parseTool reads what an agent needs of a tool definition, whose other members
// stay in Definition as they are.
func parseTool(server, prefix string, definition json.RawMessage) (remoteTool, error) {
	var t struct {
		Name        string          `json:"name"`
		Description string          `json:"description"`
		InputSchema json.RawMessage `json:"inputSchema"`
	}
	if err := json.Unmarshal(definition, &t); err != nil {
		return remoteTool{}, fmt.Errorf("reading a tool definition: %w", err)
	}
	if t.Name == "" {
		return remoteTool{}, errors.New("reading a tool definition: it has no name")
	}
	return remoteTool{
		Tool: Tool{
			Name:        prefix + t.Name,
			Server:      server,
			Description: t.Description,
			InputSchema: t.InputSchema,
			Definition:  definition,
		},
		original: t.Name,
	}, nil
}
