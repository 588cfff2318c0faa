package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// The modes.
const (
	modeStateful  = "stateful"
	modeStateless = "stateless"
	modeDefault   = "default"
	modeModern    = "modern-only"
	modeSSE       = "sse"
	modeStdio     = "stdio"
)

func (o options) validate() error {
	var errs []error
	for _, flag := range []struct {
		name, value string
		allowed     []string
	}{
		{"mode", o.mode, []string{modeStateful, modeStateless, modeDefault, modeModern, modeSSE, modeStdio}},
		{"version", o.version, []string{"v1", "v1b", "v2"}},
		{"unknown-session", o.unknownSession, []string{"", "404", "400", "401", "503", "200error"}},
	} {
		if !slices.Contains(flag.allowed, flag.value) {
			errs = append(errs, fmt.Errorf("-%s %q is not one of %q", flag.name, flag.value, flag.allowed))
		}
	}
	return errors.Join(errs...)
}

// backend is the server and what it knows of its sessions.
type backend struct {
	o       options
	journal *journal.Writer
	mcp     *server.MCPServer
	counter atomic.Int64 // of the tool count
	ready   atomic.Bool  // the MCP endpoint is available

	mu       sync.Mutex
	version  string          // "" while the tools are those of -tools
	sessions map[string]bool // by id: whether it was initialized
}

func newBackend(o options, j *journal.Writer) (*backend, error) {
	b := &backend{o: o, journal: j, version: o.version, sessions: make(map[string]bool)}
	if o.tools != "" {
		b.version = ""
	}
	b.ready.Store(o.unavailable == 0)
	if _, err := b.load(b.version); err != nil {
		return nil, err
	}
	options := []server.ServerOption{
		server.WithToolCapabilities(o.listChanged),
		server.WithElicitation(),
		server.WithLogging(),
		server.WithHooks(b.hooks()),
		server.WithToolHandlerMiddleware(b.journaled),
	}
	if o.pageSize > 0 {
		options = append(options, server.WithPaginationLimit(o.pageSize))
	}
	b.mcp = server.NewMCPServer("testbackend", o.version, options...)
	b.mcp.EnableSampling()
	b.mcp.AddNotificationHandler("notifications/initialized", func(ctx context.Context, _ mcp.JSONRPCNotification) {
		b.note(ctx, true)
		b.log(ctx, journal.Entry{Event: "notifications/initialized"})
	})
	return b, nil
}

// phases goes through the start: unavailable, without tools, complete.
func (b *backend) phases(ctx context.Context) error {
	if !sleep(ctx, b.o.unavailable) {
		return nil
	}
	if b.o.empty == 0 {
		defer b.ready.Store(true)
		return b.offer(b.currentVersion())
	}
	b.ready.Store(true)
	if !sleep(ctx, b.o.empty) {
		return nil
	}
	return b.offer(b.currentVersion())
}

// follow offers the next tools at every signal.
func (b *backend) follow(ctx context.Context, next <-chan os.Signal) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-next:
		}
		version := b.currentVersion()
		switch version {
		case "":
		case "v2":
			version = "v1"
		default:
			version = "v2"
		}
		if err := b.offer(version); err != nil {
			fmt.Fprintln(os.Stderr, "testbackend:", err)
		}
	}
}

// offer replaces the tools, which tells the sessions.
func (b *backend) offer(version string) error {
	tools, err := b.load(version)
	if err != nil {
		return err
	}
	b.mu.Lock()
	b.version = version
	b.mu.Unlock()
	b.mcp.SetTools(tools...)
	return nil
}

func (b *backend) currentVersion() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.version
}

// hooks keep the journal, but for tool calls, and know the sessions.
func (b *backend) hooks() *server.Hooks {
	h := &server.Hooks{}
	h.AddBeforeAny(func(ctx context.Context, id any, method mcp.MCPMethod, message any) {
		e := journal.Entry{Event: string(method)}
		e.ID, _ = json.Marshal(id)
		switch m := message.(type) {
		case *mcp.CallToolRequest:
			return
		case *mcp.InitializeRequest:
			e.Params = m.Params
			b.note(ctx, false)
		case *mcp.ListToolsRequest:
			e.Cursor = string(m.Params.Cursor)
		}
		b.log(ctx, e)
	})
	if b.o.mode == modeSSE { // the stream is the session
		h.AddOnUnregisterSession(func(_ context.Context, session server.ClientSession) {
			b.mu.Lock()
			defer b.mu.Unlock()
			delete(b.sessions, session.SessionID())
		})
	}
	if b.o.notifyOnList {
		h.AddAfterListTools(func(context.Context, any, *mcp.ListToolsRequest, *mcp.ListToolsResult) {
			b.mcp.SendNotificationToAllClients(mcp.MethodNotificationToolsListChanged, nil)
		})
	}
	return h
}

// log adds an entry for the request that ctx belongs to.
func (b *backend) log(ctx context.Context, e journal.Entry) {
	if session := server.ClientSessionFromContext(ctx); session != nil {
		e.Session = session.SessionID()
	}
	if err := b.journal.Add(e); err != nil {
		fmt.Fprintln(os.Stderr, "testbackend:", err)
	}
}

// note remembers the session that ctx belongs to, and whether it is initialized.
func (b *backend) note(ctx context.Context, initialized bool) {
	session := server.ClientSessionFromContext(ctx)
	if session == nil || session.SessionID() == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sessions[session.SessionID()] = initialized
}

// journaled notes when a tool begins and ends.
func (b *backend) journaled(next server.ToolHandlerFunc) server.ToolHandlerFunc {
	return func(ctx context.Context, r mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		e := journal.Entry{
			Event: string(mcp.MethodToolsCall), Phase: journal.Begin, Tool: r.Params.Name, Args: r.Params.Arguments,
		}
		e.ID, _ = ctx.Value(requestID{}).(json.RawMessage)
		b.log(ctx, e)
		result, err := next(ctx, r)
		e.Phase = journal.End
		b.log(ctx, e)
		return result, err
	}
}
