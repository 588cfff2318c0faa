// Command backend is an MCP server made with the official Go SDK, whose tools depend on its version.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "backend:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to clean up
	}
}

func run(ctx context.Context) error {
	listen := flag.String("listen", "127.0.0.1:0", "`address` to listen on")
	version := flag.String("version", "v1", "which tools to offer: v1 or v2")
	stateless := flag.Bool("stateless", false, "keep no sessions")
	flag.Parse()

	handler := mcp.NewStreamableHTTPHandler(
		func() func(*http.Request) *mcp.Server {
			s := newServer(*version)
			return func(*http.Request) *mcp.Server { return s }
		}(),
		&mcp.StreamableHTTPOptions{Stateless: *stateless},
	)
	mux := http.NewServeMux()
	mux.Handle("/mcp", handler)
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", *listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(listener) }()
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	// Calls may finish. Streams never do by themselves.
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 300*time.Millisecond)
	defer cancel()
	if s.Shutdown(grace) != nil {
		_ = s.Close()
	}
	return nil
}

func newServer(version string) *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "gosdk", Version: version}, nil)
	type account struct {
		Account string `json:"account"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "balance", Description: "Reads a balance.", Annotations: &mcp.ToolAnnotations{ReadOnlyHint: true}},
		func(_ context.Context, _ *mcp.CallToolRequest, in account) (*mcp.CallToolResult, any, error) {
			return text(in.Account), nil, nil
		})
	type nothing struct{}
	if version == "v1" {
		mcp.AddTool(s, &mcp.Tool{Name: "count", Description: "Counts its calls."},
			func(context.Context, *mcp.CallToolRequest, nothing) (*mcp.CallToolResult, any, error) {
				return text("1"), nil, nil
			})
	} else {
		type factors struct {
			A float64 `json:"a"`
			B float64 `json:"b"`
		}
		mcp.AddTool(s, &mcp.Tool{Name: "multiply", Description: "Multiplies two numbers."},
			func(_ context.Context, _ *mcp.CallToolRequest, in factors) (*mcp.CallToolResult, any, error) {
				return text(fmt.Sprint(in.A * in.B)), nil, nil
			})
	}
	return s
}

func text(s string) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: s}}}
}
