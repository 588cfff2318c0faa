package agentserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"time"
)

var (
	errClientClosed   = errors.New("client was closed")
	errRefreshTimeout = fmt.Errorf("MCP server took too long to connect and list its tools: %w", context.DeadlineExceeded)
	errCallTimeout    = fmt.Errorf("MCP server took too long to answer the call: %w", context.DeadlineExceeded)
)

// MCPServer says how a conversation reaches one MCP server (Streamable HTTP).
type MCPServer struct {
	Name    string
	URL     string            // http or https
	Headers map[string]string // sent with every request; secret
	Timeout time.Duration     // for a tool call; 0 means the agent server's
}

// validate never shows the URL or a header.
func (s MCPServer) validate() error {
	if s.Name == "" {
		return errors.New("MCP server has no name")
	}
	u, err := url.Parse(s.URL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("MCP server %q: URL must be an absolute http or https URL", s.Name)
	}
	if s.Timeout < 0 {
		return fmt.Errorf("MCP server %q: timeout must not be negative", s.Name)
	}
	return nil
}

// mcpClient is a conversation's client of one MCP server.
type mcpClient struct {
	server  MCPServer
	prefix  string // before the names of its tools
	dialer  *dialer
	changed chan struct{} // holds at most one: the tools may have changed
	stop    context.CancelFunc
	stopped chan struct{}

	// Guarded by Conversation.mu.
	session *session // nil until the first connection
	down    bool     // the session's connection failed
	closed  bool
	tools   []remoteTool
}

// newClient makes a client and starts watching for changes until it is closed.
func (c *Conversation) newClient(ctx context.Context, server MCPServer, prefix string) *mcpClient {
	server.Headers = maps.Clone(server.Headers)
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	m := &mcpClient{
		server:  server,
		prefix:  prefix,
		changed: make(chan struct{}, 1),
		stop:    stop,
		stopped: make(chan struct{}),
	}
	m.dialer = &dialer{server: server, base: c.srv.transport, cfg: c.srv.cfg, onChanged: func() {
		select {
		case m.changed <- struct{}{}:
		default: // a look that hasn't begun yet covers this change too
		}
	}}
	go func() {
		defer close(m.stopped)
		c.watch(ctx, m)
	}()
	return m
}

// watch refreshes a client whenever its server says that its tools changed.
func (c *Conversation) watch(ctx context.Context, m *mcpClient) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.changed:
		}
		release, err := c.acquire(ctx)
		if err != nil {
			return
		}
		err = c.refreshClient(ctx, m)
		release()
		if err != nil && ctx.Err() == nil && !errors.Is(err, errClientClosed) {
			c.srv.logger.Warn("refresh after a notification failed, the next refresh tries again",
				"server", m.server.Name, "err", err)
		}
	}
}

// refreshClient brings a client's tools up to date. The caller holds the refresh lock.
func (c *Conversation) refreshClient(ctx context.Context, m *mcpClient) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.srv.cfg.RefreshTimeout, errRefreshTimeout)
	defer cancel()

	if s := c.usableSession(m); s != nil {
		definitions, err := s.listTools(ctx, c.srv.cfg.MaxTools)
		if err == nil {
			return c.reconcile(m, definitions)
		}
		if !answered(err) {
			return c.failed(ctx, m, s, err)
		}
	}
	return c.reconnect(ctx, m)
}

// reconnect opens a new session in place of the client's, and lists its tools.
// The caller holds the refresh lock.
func (c *Conversation) reconnect(ctx context.Context, m *mcpClient) error {
	s, err := m.dialer.dial(ctx)
	if err != nil {
		return c.failed(ctx, m, nil, err)
	}
	c.mu.Lock()
	old, closed := m.session, m.closed
	if !closed {
		m.session, m.down = s, false
	}
	c.mu.Unlock()
	if closed {
		s.close()
		return errClientClosed
	}
	if old != nil {
		defer old.close()
	}
	definitions, err := s.listTools(ctx, c.srv.cfg.MaxTools)
	if err != nil {
		return c.failed(ctx, m, s, err)
	}
	return c.reconcile(m, definitions)
}

// usableSession returns the client's session, nil where it needs a new one.
func (c *Conversation) usableSession(m *mcpClient) *session {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.down {
		return nil
	}
	return m.session
}

// failed marks the client as down where its connection failed on session s, and
// returns the error to report. That a caller or a timeout gave up says nothing
// about the connection.
func (c *Conversation) failed(ctx context.Context, m *mcpClient, s *session, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if m.closed {
		return errClientClosed
	}
	if s != nil && m.session == s && ctx.Err() == nil && !answered(err) {
		m.down = true
	}
	return err
}

// reconcile replaces the client's tools by what its server lists. When one has a
// name that is taken, nothing changes.
func (c *Conversation) reconcile(m *mcpClient, definitions []json.RawMessage) error {
	tools := make([]remoteTool, 0, len(definitions))
	for _, definition := range definitions {
		tool, err := parseTool(m.server.Name, m.prefix, definition)
		if err != nil {
			return err
		}
		tools = append(tools, tool)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	if m.closed {
		return errClientClosed
	}
	taken := make(map[string]bool)
	for name := range c.srv.local {
		taken[name] = true
	}
	for _, other := range c.clients {
		if other == m {
			continue
		}
		for _, tool := range other.tools {
			taken[tool.Name] = true
		}
	}
	for _, tool := range tools {
		if taken[tool.Name] {
			return fmt.Errorf("%w: %q", ErrToolClash, tool.Name)
		}
		taken[tool.Name] = true
	}
	m.tools = tools
	return nil
}

// close ends the client: its watcher, its session s and what it has under way.
// The caller has marked it closed.
func (m *mcpClient) close(s *session) {
	m.stop()
	if s != nil {
		s.close()
	}
	<-m.stopped
}
