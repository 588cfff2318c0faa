package agentserver

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"
)

// Action is what the server offers for bringing a conversation's tools up to date.
type Action int

// The actions.
const (
	// ActionRefresh offers POST …/refresh_mcp_tools.
	ActionRefresh Action = iota + 1
	// ActionReconnect offers POST …/reconnect_mcp instead, which connects every
	// client anew and reports each.
	ActionReconnect
	// ActionNone offers neither, as servers without the action do.
	ActionNone
)

// Config is what a server is told.
type Config struct {
	Action           Action
	Name             string        // of the client, as told to MCP servers and by /server_info
	Version          string        // likewise
	RefreshTimeout   time.Duration // for one client: connecting and listing
	CallTimeout      time.Duration // for one tool call, where the MCP server's settings have none
	Concurrency      int           // refreshes at the same time, over all conversations
	MaxConversations int
	MaxHistory       int   // events kept by a conversation; the oldest go first
	MaxTools         int   // tools that one MCP server may list
	MaxMessage       int64 // bytes of one message from an MCP server
	MaxBody          int64 // bytes of a request to the HTTP API
}

// DefaultConfig returns the defaults.
func DefaultConfig() Config {
	return Config{
		Action:           ActionRefresh,
		Name:             "mcp-sidecar-agentserver",
		Version:          "dev",
		RefreshTimeout:   30 * time.Second,
		CallTimeout:      300 * time.Second,
		Concurrency:      64,
		MaxConversations: 10_000,
		MaxHistory:       1_000,
		MaxTools:         10_000,
		MaxMessage:       16 << 20,
		MaxBody:          1 << 20,
	}
}

// Deps is what a server needs from others. All of it may be left out.
type Deps struct {
	Logger *slog.Logger
	// Keys returns the API keys that are accepted; it is asked on every request.
	// No keys means no authentication. An error refuses the request.
	Keys func() ([]string, error)
	// Transport sends the requests to MCP servers; by default an own one.
	Transport http.RoundTripper
	// LocalTools are offered by every conversation, besides those of MCP servers.
	LocalTools []LocalTool
}

func (c Config) validate() error {
	var errs []error
	if c.Action < ActionRefresh || c.Action > ActionNone {
		errs = append(errs, fmt.Errorf("action: %d is not one of the actions", c.Action))
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"refresh timeout", int64(c.RefreshTimeout)},
		{"call timeout", int64(c.CallTimeout)},
		{"concurrency", int64(c.Concurrency)},
		{"max conversations", int64(c.MaxConversations)},
		{"max history", int64(c.MaxHistory)},
		{"max tools", int64(c.MaxTools)},
		{"max message", c.MaxMessage},
		{"max body", c.MaxBody},
	} {
		if f.value <= 0 {
			errs = append(errs, fmt.Errorf("%s: must be greater than zero; DefaultConfig has a value for it", f.name))
		}
	}
	return errors.Join(errs...)
}
