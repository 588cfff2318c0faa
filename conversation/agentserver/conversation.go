package agentserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// Conversation is one conversation of an agent. It holds a client for each of its
// MCP servers, which it connects when they are needed first.
type Conversation struct {
	id      ID
	srv     *Server
	created time.Time

	// refreshing is the lock that all refreshes share. It is held while servers
	// are asked; mu never is.
	refreshing chan struct{}

	mu      sync.Mutex
	clients []*mcpClient
	ready   bool // every client was connected once
	closed  bool
	history []Event
	updated time.Time
}

// ID returns the conversation's id, which never changes.
func (c *Conversation) ID() ID { return c.id }

// Start connects the clients that aren't connected yet and lists their tools. It
// does nothing when that was done before. The error is a [*RefreshError].
func (c *Conversation) Start(ctx context.Context) error {
	if c.isReady() {
		return nil
	}
	return c.RefreshMCPTools(ctx)
}

// RefreshMCPTools brings the tools of all clients up to date, as the package
// comment says. Its error, a [*RefreshError], reports every client that failed.
// It returns an error at once when ctx ends or the conversation is closed.
func (c *Conversation) RefreshMCPTools(ctx context.Context) error {
	return c.forEachClient(ctx, c.refreshClient)
}

// forEachClient runs refresh for every client, under the lock, and counts the
// conversation as ready when none failed.
func (c *Conversation) forEachClient(ctx context.Context, refresh func(context.Context, *mcpClient) error) error {
	release, err := c.acquire(ctx)
	if err != nil {
		return err
	}
	defer release()

	c.mu.Lock()
	clients := slices.Clone(c.clients)
	wasReady := c.ready
	c.mu.Unlock()

	var errs []error
	for _, m := range clients {
		if err := refresh(ctx, m); err != nil && !errors.Is(err, errClientClosed) {
			errs = append(errs, fmt.Errorf("MCP server %q: %w", m.server.Name, err))
		}
	}
	if len(errs) > 0 {
		return &RefreshError{Initial: !wasReady, Errs: errs}
	}
	c.mu.Lock()
	c.ready = true
	c.mu.Unlock()
	return nil
}

// acquire takes the refresh lock and one of the server's places for refreshes.
func (c *Conversation) acquire(ctx context.Context) (release func(), err error) {
	select {
	case c.refreshing <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for another refresh: %w", context.Cause(ctx))
	}
	select {
	case c.srv.places <- struct{}{}:
	case <-ctx.Done():
		<-c.refreshing
		return nil, fmt.Errorf("waiting for other refreshes: %w", context.Cause(ctx))
	}
	c.mu.Lock()
	closed := c.closed
	c.mu.Unlock()
	release = func() { <-c.srv.places; <-c.refreshing }
	if closed {
		release()
		return nil, ErrClosed
	}
	return release, nil
}

func (c *Conversation) isReady() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ready && !c.closed
}

// Tools returns what the conversation offers now: the local tools, then those of
// each client in the order that its server lists them.
func (c *Conversation) Tools() []Tool {
	tools := make([]Tool, 0, len(c.srv.localTools))
	for _, local := range c.srv.localTools {
		tools = append(tools, local.Tool)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.clients {
		for _, tool := range m.tools {
			tools = append(tools, tool.Tool)
		}
	}
	return tools
}

// CallTool calls a tool by the name that [Conversation.Tools] gives it, and notes
// the call in the history. args must marshal to a JSON object; nil means none. A
// result with IsError set is a result, not an error.
//
// A call that the server didn't run because it doesn't know the session any more
// is sent once more on a new one. Any other failed call may have run.
func (c *Conversation) CallTool(ctx context.Context, name string, args any) (*mcp.CallToolResult, error) {
	if args == nil {
		args = struct{}{}
	}
	arguments, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("calling tool %q: encoding its arguments: %w", name, err)
	}
	result, err := c.callTool(ctx, name, args)
	c.Append(Event{
		Kind: KindToolCall, Source: "agent", Tool: name, Arguments: arguments,
		Failed: err != nil || result.IsError,
	})
	if err != nil {
		return nil, fmt.Errorf("calling tool %q: %w", name, err)
	}
	return result, nil
}

func (c *Conversation) callTool(ctx context.Context, name string, args any) (*mcp.CallToolResult, error) {
	if local, ok := c.srv.local[name]; ok {
		return local(ctx, args)
	}
	m, tool, ok := c.find(name)
	if !ok {
		// The tool's client may not be connected yet.
		if err := c.Start(ctx); err != nil {
			return nil, err
		}
		if m, tool, ok = c.find(name); !ok {
			return nil, c.unknownTool()
		}
	}
	timeout := m.server.Timeout
	if timeout == 0 {
		timeout = c.srv.cfg.CallTimeout
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, errCallTimeout)
	defer cancel()

	s := c.usableSession(m)
	if s == nil {
		var err error
		if s, err = c.replaceSession(ctx, m, nil); err != nil {
			return nil, err
		}
	}
	params := mcp.CallToolParams{Name: tool, Arguments: args}
	raw, err := s.call(ctx, string(mcp.MethodToolsCall), params, nil)
	if terminated(err) {
		if s, err = c.replaceSession(ctx, m, s); err != nil {
			return nil, err
		}
		raw, err = s.call(ctx, string(mcp.MethodToolsCall), params, nil)
	}
	if err != nil {
		return nil, c.failed(ctx, m, s, err)
	}
	result, err := mcp.ParseCallToolResult(&raw)
	if err != nil {
		return nil, fmt.Errorf("reading the result: %w", err)
	}
	return result, nil
}

// find returns the client that offers a tool, and the server's name for it.
func (c *Conversation) find(name string) (*mcpClient, string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.clients {
		for _, tool := range m.tools {
			if tool.Name == name {
				return m, tool.original, true
			}
		}
	}
	return nil, "", false
}

func (c *Conversation) unknownTool() error {
	tools := c.Tools()
	names := make([]string, len(tools))
	for i, tool := range tools {
		names[i] = tool.Name
	}
	return fmt.Errorf("%w: the conversation offers %s", ErrUnknownTool, strings.Join(names, ", "))
}

// replaceSession returns a usable session other than gone, which it opens unless
// somebody else did meanwhile.
func (c *Conversation) replaceSession(ctx context.Context, m *mcpClient, gone *session) (*session, error) {
	release, err := c.acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	if s := c.usableSession(m); s != nil && s != gone {
		return s, nil
	}
	if err := c.reconnect(ctx, m); err != nil {
		return nil, err
	}
	if s := c.usableSession(m); s != nil {
		return s, nil
	}
	return nil, errClientClosed
}

// AddClient adds a client to the conversation. Its tools get the server's name and
// "_" before theirs when the conversation has other clients. Where the
// conversation has connected its clients already, the new one is connected now; a
// client that can't be isn't kept.
func (c *Conversation) AddClient(ctx context.Context, server MCPServer) error {
	if err := server.validate(); err != nil {
		return err
	}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return ErrClosed
	}
	if slices.ContainsFunc(c.clients, func(m *mcpClient) bool { return m.server.Name == server.Name }) {
		c.mu.Unlock()
		return fmt.Errorf("%w: %q", ErrClientExists, server.Name)
	}
	prefix := ""
	if len(c.clients) > 0 {
		prefix = server.Name + "_"
	}
	m := c.newClient(ctx, server, prefix)
	c.clients = append(c.clients, m)
	ready := c.ready
	c.mu.Unlock()
	if !ready {
		return nil
	}

	release, err := c.acquire(ctx)
	if err == nil {
		err = c.refreshClient(ctx, m)
		release()
	}
	if err != nil {
		c.remove(m)
		return fmt.Errorf("adding MCP server %q: %w", server.Name, err)
	}
	return nil
}

// CloseClient closes the client of that name and forgets its tools. It does
// nothing when there is none, or it was closed before.
func (c *Conversation) CloseClient(name string) {
	c.mu.Lock()
	i := slices.IndexFunc(c.clients, func(m *mcpClient) bool { return m.server.Name == name })
	if i < 0 {
		c.mu.Unlock()
		return
	}
	m := c.clients[i]
	c.mu.Unlock()
	c.remove(m)
}

// remove forgets a client and closes it.
func (c *Conversation) remove(m *mcpClient) {
	c.mu.Lock()
	c.clients = slices.DeleteFunc(slices.Clone(c.clients), func(other *mcpClient) bool { return other == m })
	m.closed = true
	s := m.session
	c.mu.Unlock()
	m.close(s)
}

// close closes all clients at the same time: each tells its server.
func (c *Conversation) close() {
	c.mu.Lock()
	c.closed = true
	clients := c.clients
	c.mu.Unlock()
	var wg sync.WaitGroup
	for _, m := range clients {
		wg.Go(func() { c.remove(m) })
	}
	wg.Wait()
}
