package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

// Versions of the backend.
const (
	V1 = "v1"
	V2 = "v2"
)

// BackendConfig says which backend to be.
type BackendConfig struct {
	Version   string // V1 or V2
	Listen    string
	Stateless bool
}

// ServeBackend is the backend's process: an MCP server that offers the tools of its version at /mcp until ctx ends. It
// writes a line to ready once it listens.
func ServeBackend(ctx context.Context, cfg BackendConfig, ready io.Writer) error {
	if cfg.Version != V1 && cfg.Version != V2 {
		return fmt.Errorf("there is no version %q of the demo's backend: use %s or %s", cfg.Version, V1, V2)
	}
	s := server.NewMCPServer("travel", cfg.Version, server.WithToolCapabilities(true))
	for _, t := range tools(cfg.Version) {
		s.AddTool(t, func(_ context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText(cfg.Version + " ran " + r.Params.Name), nil
		})
	}
	mode := server.WithStateful(true)
	if cfg.Stateless {
		mode = server.WithStateLess(true)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return fmt.Errorf("starting the demo's backend: %w", err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", server.NewStreamableHTTPServer(s, mode))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: readHeaderTimeout}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if _, err := fmt.Fprintln(ready, l.Addr()); err != nil {
		return fmt.Errorf("telling that the demo's backend listens: %w", err)
	}
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving the demo's backend: %w", err)
	}
	return nil
}

// callTool is the tool that agents call all the time: every version has it.
const callTool = "convert"

// tools returns what a version offers. Between the two, one tool is added, one removed, and one asks for more.
func tools(version string) []mcp.Tool {
	reads := mcp.WithReadOnlyHintAnnotation(true)
	convert := mcp.NewTool(callTool, reads,
		mcp.WithDescription("Convert an amount between two currencies."),
		mcp.WithNumber("amount", mcp.Required()), mcp.WithString("to", mcp.Required()))
	if version == V1 {
		return []mcp.Tool{
			convert,
			mcp.NewTool("forecast", reads,
				mcp.WithDescription("The weather in a city."), mcp.WithString("city", mcp.Required())),
			mcp.NewTool("timetable", reads,
				mcp.WithDescription("Departures of a station."), mcp.WithString("station", mcp.Required())),
		}
	}
	return []mcp.Tool{
		convert,
		mcp.NewTool("forecast", reads,
			mcp.WithDescription("The weather in a city on one of the next days."),
			mcp.WithString("city", mcp.Required()), mcp.WithNumber("day", mcp.Required())),
		mcp.NewTool("connections", reads,
			mcp.WithDescription("Connections between two stations."),
			mcp.WithString("from", mcp.Required()), mcp.WithString("to", mcp.Required())),
	}
}
