package agentserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	"github.com/mark3labs/mcp-go/mcp"
)

var (
	errRepeatedCursor = errors.New("server repeated a cursor of its tool list")
	errTooManyTools   = errors.New("server lists too many tools")
	errEmptyAnswer    = errors.New("server answered neither a result nor an error")
)

// session is one connection to an MCP server: an initialised mcp-go client.
//
// Requests go through the client's transport rather than its typed methods,
// which lose members of a tool's schema and the codes of errors.
type session struct {
	client *client.Client
	lastID atomic.Int64
}

// dialer opens the sessions of one MCP server.
type dialer struct {
	server    MCPServer
	base      http.RoundTripper
	cfg       Config
	onChanged func() // called for every notifications/tools/list_changed; must not block
}

// dial connects to the server and completes the handshake.
func (d *dialer) dial(ctx context.Context) (*session, error) {
	c, err := client.NewStreamableHttpClient(d.server.URL,
		//nolint:staticcheck // deprecated, and how sessions of older revisions are told of changes
		transport.WithContinuousListening(),
		transport.WithHTTPBasicClient(&http.Client{
			Transport:     &roundTripper{base: d.base, headers: d.server.Headers, max: d.cfg.MaxMessage},
			CheckRedirect: sameHost,
		}),
		// What mcp-go logs holds URLs and answers.
		transport.WithHTTPLogger(slog.New(slog.DiscardHandler)),
	)
	if err != nil {
		return nil, errors.New("address isn't a URL")
	}
	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == mcp.MethodNotificationToolsListChanged {
			d.onChanged()
		}
	})
	// The stream for notifications outlives the request that opens the session:
	// it ends when the client is closed.
	if err := c.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, fmt.Errorf("starting a client: %w", err)
	}
	_, err = c.Initialize(ctx, mcp.InitializeRequest{
		Header: repeatable(),
		Params: mcp.InitializeParams{ClientInfo: mcp.Implementation{Name: d.cfg.Name, Version: d.cfg.Version}},
	})
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("initializing: %w", withoutURL(err))
	}
	return &session{client: c}, nil
}

// repeatable returns headers that let net/http send a request once more when the
// server closed the kept-alive connection that it was sent on, as every swap does.
// Without a value the header itself isn't sent.
func repeatable() http.Header { return http.Header{"Idempotency-Key": {}} }

// call sends one request and returns its result as the server sent it.
func (s *session) call(ctx context.Context, method string, params any, header http.Header) (json.RawMessage, error) {
	answer, err := s.client.GetTransport().SendRequest(ctx, transport.JSONRPCRequest{
		JSONRPC: mcp.JSONRPC_VERSION,
		// Text ids can't collide with the numbers that the client itself uses.
		ID:     mcp.NewRequestId(fmt.Sprintf("a%d", s.lastID.Add(1))),
		Method: method,
		Params: params,
		Header: header,
	})
	switch {
	case err != nil:
		return nil, withoutURL(err)
	case answer.Error != nil:
		return nil, &RPCError{Code: answer.Error.Code, Message: answer.Error.Message, Data: answer.Error.Data}
	case len(answer.Result) == 0:
		return nil, errEmptyAnswer
	}
	return answer.Result, nil
}

// listTools returns the definitions of all pages of tools/list.
func (s *session) listTools(ctx context.Context, limit int) ([]json.RawMessage, error) {
	type params struct {
		Cursor *string `json:"cursor,omitempty"`
	}
	var (
		all  []json.RawMessage
		next *string
		seen = map[string]bool{}
	)
	for {
		result, err := s.call(ctx, string(mcp.MethodToolsList), params{Cursor: next}, repeatable())
		if err != nil {
			return nil, fmt.Errorf("listing tools: %w", err)
		}
		var page struct {
			Tools      []json.RawMessage `json:"tools"`
			NextCursor *string           `json:"nextCursor"` // "" is a cursor too
		}
		if err := json.Unmarshal(result, &page); err != nil {
			return nil, fmt.Errorf("reading the tool list: %w", err)
		}
		all = append(all, page.Tools...)
		switch {
		case len(all) > limit:
			return nil, fmt.Errorf("%w: more than %d", errTooManyTools, limit)
		case page.NextCursor == nil:
			return all, nil
		case seen[*page.NextCursor]:
			return nil, errRepeatedCursor
		}
		next = page.NextCursor
		seen[*next] = true
	}
}

// close ends the session at the server too, where it still knows it.
func (s *session) close() {
	_ = s.client.Close()
}

// terminated reports whether err says that the server doesn't know the session
// any more, so that it didn't act on the request.
func terminated(err error) bool {
	return errors.Is(err, transport.ErrSessionTerminated)
}

// answered reports whether err is an answer of the server for which a refresh
// connects anew: it ended the session, or it answered a JSON-RPC error.
func answered(err error) bool {
	if terminated(err) {
		return true
	}
	_, ok := errors.AsType[*RPCError](err)
	return ok
}
