package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// definition is a tool as a tool file has it.
type definition struct {
	Name         string              `json:"name"`
	Title        string              `json:"title"`
	Description  string              `json:"description"`
	InputSchema  json.RawMessage     `json:"inputSchema"`
	OutputSchema json.RawMessage     `json:"outputSchema"`
	Annotations  *mcp.ToolAnnotation `json:"annotations"`
	Meta         *mcp.Meta           `json:"_meta"`
}

// shared are the tools that every version has.
const shared = `
	{"name": "slow", "description": "Takes its time.", "inputSchema": {"type": "object", "properties": {"ms": {"type": "integer"}}}},
	{"name": "balance", "description": "Reads a balance.", "annotations": {"readOnlyHint": true},
	 "inputSchema": {"type": "object", "properties": {"account": {"type": "string"}}}},
	{"name": "set_limit", "description": "Sets a limit.", "annotations": {"idempotentHint": true},
	 "inputSchema": {"type": "object", "properties": {"account": {"type": "string"}, "limit": {"type": "integer"}}}},
	{"name": "transfer", "description": "Moves money, each time it is called.", "annotations": {"destructiveHint": true},
	 "inputSchema": {"type": "object", "properties": {"amount": {"type": "integer"}}}},
	{"name": "progress", "description": "Reports progress.", "inputSchema": {"type": "object", "properties": {"steps": {"type": "integer"}}}},
	{"name": "sample", "description": "Asks the client's model.", "inputSchema": {"type": "object"}},
	{"name": "elicit", "description": "Asks the user.", "inputSchema": {"type": "object"}}`

// versions has the tools of each version: v2 adds multiply, has no count, and
// wants one more argument of echo. v1b is v1, but for what doesn't matter.
func versions() map[string]string {
	return map[string]string{
		"v1": `[
	{"name": "add", "description": "Adds two numbers.", "inputSchema": {"type": "object",
	 "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}},
	{"name": "echo", "description": "Says the same.", "inputSchema": {"type": "object",
	 "properties": {"text": {"type": "string"}}, "required": ["text"]}},
	{"name": "count", "description": "Counts its calls.", "inputSchema": {"type": "object"}},` + shared + `]`,
		"v1b": `[` + shared + `,
	{"name": "count", "description": "Counts its calls.", "inputSchema": {"type": "object"}},
	{"inputSchema": {"required": ["text"], "properties": {"text": {"type": "string"}}, "type": "object"},
	 "description": "Says the \u0073ame.", "name": "echo"},
	{"name": "add", "description": "Adds two numbers.", "inputSchema": {"required": ["b", "a"],
	 "properties": {"b": {"type": "number"}, "a": {"type": "number"}}, "type": "object"}}]`,
		"v2": `[
	{"name": "add", "description": "Adds two numbers.", "inputSchema": {"type": "object",
	 "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}},
	{"name": "echo", "description": "Says the same, several times.", "inputSchema": {"type": "object",
	 "properties": {"text": {"type": "string"}, "times": {"type": "integer"}}, "required": ["text", "times"]}},
	{"name": "multiply", "description": "Multiplies two numbers.", "inputSchema": {"type": "object",
	 "properties": {"a": {"type": "number"}, "b": {"type": "number"}}, "required": ["a", "b"]}},` + shared + `]`,
	}
}

// load reads the tools that the backend is to offer now.
func (b *backend) load(version string) ([]server.ServerTool, error) {
	text, ok := versions()[version]
	raw := []byte(text)
	if version == "" {
		var err error
		if raw, err = os.ReadFile(b.o.tools); err != nil {
			return nil, fmt.Errorf("reading the tools: %w", err)
		}
	} else if !ok {
		return nil, fmt.Errorf("version %q is not one of v1, v1b, v2", version)
	}
	var definitions []definition
	if err := json.Unmarshal(raw, &definitions); err != nil {
		return nil, fmt.Errorf("reading the tools: %w", err)
	}
	handlers := b.handlers()
	tools := make([]server.ServerTool, len(definitions))
	for i, d := range definitions {
		if len(d.InputSchema) == 0 {
			d.InputSchema = json.RawMessage(`{"type":"object"}`)
		}
		tool := mcp.NewToolWithRawSchema(d.Name, d.Description, d.InputSchema)
		tool.Title, tool.Meta, tool.RawOutputSchema = d.Title, d.Meta, d.OutputSchema
		if d.Annotations != nil {
			tool.Annotations = *d.Annotations
		}
		handler := handlers[d.Name]
		if handler == nil {
			handler = b.echo
		}
		tools[i] = server.ServerTool{Tool: tool, Handler: handler}
	}
	return tools, nil
}

// handlers has what the tools of the known names do; any other tool echoes.
func (b *backend) handlers() map[string]server.ToolHandlerFunc {
	return map[string]server.ToolHandlerFunc{
		"add":      b.add,
		"multiply": b.multiply,
		"count":    b.countCalls,
		"slow":     b.slowly,
		"transfer": b.transfer,
		"progress": b.progress,
		"sample":   b.sample,
		"elicit":   b.elicit,
	}
}

// echo answers its arguments as they came.
func (b *backend) echo(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	if text := r.GetString("text", ""); text != "" {
		return mcp.NewToolResultText(text), nil
	}
	return mcp.NewToolResultText(string(r.Params.RawArguments)), nil
}

func (b *backend) add(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(fmt.Sprint(r.GetFloat("a", 0) + r.GetFloat("b", 0))), nil
}

func (b *backend) multiply(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(fmt.Sprint(r.GetFloat("a", 0) * r.GetFloat("b", 0))), nil
}

// countCalls counts its calls, over all sessions of this process.
func (b *backend) countCalls(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(strconv.FormatInt(b.counter.Add(1), 10)), nil
}

func (b *backend) slowly(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	d := b.o.slow
	if ms := r.GetInt("ms", 0); ms > 0 {
		d = time.Duration(ms) * time.Millisecond
	}
	if !sleep(ctx, d) {
		return nil, ctx.Err()
	}
	return mcp.NewToolResultText("slow"), nil
}

// transfer runs to its end, whether or not its caller waits for it.
func (b *backend) transfer(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	sleep(context.WithoutCancel(ctx), b.o.slow)
	return mcp.NewToolResultText("transferred"), nil
}

// progress sends its notices while it runs. It pauses after each, because mcp-go
// may lose a notice that is sent right before the result.
func (b *backend) progress(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	steps := max(r.GetInt("steps", 3), 1)
	pause := max(b.o.slow/time.Duration(steps), 20*time.Millisecond)
	for step := 1; step <= steps; step++ {
		if r.Params.Meta != nil && r.Params.Meta.ProgressToken != nil {
			err := b.mcp.SendNotificationToClient(ctx, "notifications/progress", map[string]any{
				"progressToken": r.Params.Meta.ProgressToken, "progress": step, "total": steps,
			})
			if err != nil {
				return nil, fmt.Errorf("reporting progress: %w", err)
			}
		}
		if !sleep(ctx, pause) {
			return nil, ctx.Err()
		}
	}
	return mcp.NewToolResultText("done"), nil
}

func (b *backend) sample(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	//nolint:staticcheck // deprecated, and still what servers do that speak older revisions
	result, err := b.mcp.RequestSampling(ctx, mcp.CreateMessageRequest{CreateMessageParams: mcp.CreateMessageParams{
		Messages:  []mcp.SamplingMessage{{Role: mcp.RoleUser, Content: mcp.NewTextContent("hello?")}},
		MaxTokens: 10,
	}})
	if err != nil {
		return nil, fmt.Errorf("sampling: %w", err)
	}
	return mcp.NewToolResultText(mcp.GetTextFromContent(result.Content)), nil
}

func (b *backend) elicit(ctx context.Context, _ mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	result, err := b.mcp.RequestElicitation(ctx, mcp.ElicitationRequest{Params: mcp.ElicitationParams{
		Message:         "go on?",
		RequestedSchema: map[string]any{"type": "object", "properties": map[string]any{"ok": map[string]any{"type": "boolean"}}},
	}})
	if err != nil {
		return nil, fmt.Errorf("eliciting: %w", err)
	}
	return mcp.NewToolResultText(string(result.Action)), nil
}
