package agentserver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
)

// closing is how many conversations are closed at the same time.
const closing = 256

// Server keeps conversations and serves the HTTP API. [Server.Close] ends the
// sessions of all of them.
type Server struct {
	cfg        Config
	logger     *slog.Logger
	keys       func() ([]string, error)
	transport  http.RoundTripper
	ownBase    *http.Transport // nil when the transport was given
	localTools []LocalTool
	local      map[string]func(context.Context, any) (*mcp.CallToolResult, error)
	places     chan struct{} // one for each refresh under way
	started    time.Time
	handler    http.Handler

	mu            sync.Mutex
	closed        bool
	lastActive    time.Time
	conversations map[ID]*Conversation
}

// New returns a server without conversations.
func New(cfg Config, d Deps) (*Server, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("configuring the agent server: %w", err)
	}
	now := time.Now()
	s := &Server{
		cfg:           cfg,
		logger:        d.Logger,
		keys:          d.Keys,
		transport:     d.Transport,
		localTools:    d.LocalTools,
		local:         make(map[string]func(context.Context, any) (*mcp.CallToolResult, error)),
		places:        make(chan struct{}, cfg.Concurrency),
		started:       now,
		lastActive:    now,
		conversations: make(map[ID]*Conversation),
	}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.logger = s.logger.With("component", "agentserver")
	if s.keys == nil {
		s.keys = func() ([]string, error) { return nil, nil }
	}
	if s.transport == nil {
		s.ownBase = &http.Transport{
			Proxy:               http.ProxyFromEnvironment,
			DisableCompression:  true,
			MaxIdleConnsPerHost: cfg.Concurrency,
			IdleConnTimeout:     90 * time.Second,
		}
		s.transport = s.ownBase
	}
	for _, tool := range d.LocalTools {
		if tool.Tool.Name == "" || tool.Call == nil {
			return nil, errors.New("configuring the agent server: local tool without a name or a function")
		}
		s.local[tool.Tool.Name] = tool.Call
	}
	s.handler = s.routes()
	return s, nil
}

// CreateRequest describes a new conversation.
type CreateRequest struct {
	ID      ID // "" lets the agent server choose
	Servers []MCPServer
}

// Create returns the conversation of the given id as it is, or a new one, and
// whether it is new. It doesn't connect its clients: see [Conversation.Start].
func (s *Server) Create(ctx context.Context, r CreateRequest) (*Conversation, bool, error) {
	id := r.ID
	if id == "" {
		id = newID()
	}
	id, err := ParseID(string(id))
	if err != nil {
		return nil, false, err
	}
	names := make(map[string]bool, len(r.Servers))
	for _, server := range r.Servers {
		if err := server.validate(); err != nil {
			return nil, false, err
		}
		if names[server.Name] {
			return nil, false, fmt.Errorf("%w: %q", ErrClientExists, server.Name)
		}
		names[server.Name] = true
	}

	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, false, ErrClosed
	}
	s.lastActive = time.Now()
	if c, ok := s.conversations[id]; ok {
		return c, false, nil
	}
	if len(s.conversations) >= s.cfg.MaxConversations {
		return nil, false, fmt.Errorf("%w: %d", ErrFull, len(s.conversations))
	}
	now := time.Now().UTC()
	c := &Conversation{id: id, srv: s, created: now, updated: now, refreshing: make(chan struct{}, 1)}
	for _, server := range r.Servers {
		prefix := ""
		if len(r.Servers) > 1 {
			prefix = server.Name + "_"
		}
		c.clients = append(c.clients, c.newClient(ctx, server, prefix))
	}
	s.conversations[id] = c
	return c, true, nil
}

// Conversation returns the conversation of that id, or [ErrNotFound].
func (s *Server) Conversation(id ID) (*Conversation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.conversations[id]
	if !ok {
		return nil, ErrNotFound
	}
	s.lastActive = time.Now()
	return c, nil
}

// Conversations returns all conversations, in no order.
func (s *Server) Conversations() []*Conversation {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Conversation, 0, len(s.conversations))
	for _, c := range s.conversations {
		all = append(all, c)
	}
	return all
}

// Delete closes a conversation and forgets it, or returns [ErrNotFound].
func (s *Server) Delete(id ID) error {
	s.mu.Lock()
	c, ok := s.conversations[id]
	delete(s.conversations, id)
	s.mu.Unlock()
	if !ok {
		return ErrNotFound
	}
	c.close()
	return nil
}

// Close closes all conversations, which end their sessions at the MCP servers. A
// server that doesn't answer to that is given up after some seconds. Closing again
// does nothing.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	all := s.conversations
	s.conversations = nil
	s.mu.Unlock()
	var wg sync.WaitGroup
	places := make(chan struct{}, closing)
	for _, c := range all {
		places <- struct{}{}
		wg.Go(func() {
			c.close()
			<-places
		})
	}
	wg.Wait()
	if s.ownBase != nil {
		s.ownBase.CloseIdleConnections()
	}
	return nil
}
