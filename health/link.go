package health

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"
)

// era says how a backend is talked to.
type era int

const (
	eraLegacy era = iota + 1 // initialize, with or without a session
	eraModern                // 2026-07-28: each request stands for itself
	eraSSE                   // 2024-11-05: the stream is the session
)

// link is how to talk to the process at the other end, as its handshake left it. It isn't changed once made.
type link struct {
	era     era
	session string // Mcp-Session-Id; empty on stateless backends
	version string // negotiated protocol version
	client  mcp.Implementation
}

// exchange returns a new exchange that belongs to the link.
func (l *link) exchange() *exchange {
	x := &exchange{session: l.session, inSession: l.session != "" || l.era == eraSSE}
	if l.era != eraSSE {
		x.version = l.version
	}
	return x
}

// forWatching returns how to open the stream on which the backend says that its tools changed.
func (l *link) forWatching() *link {
	if l.era == eraLegacy && l.session == "" {
		return &link{era: eraModern, version: mcp.ProtocolVersion20260728, client: l.client}
	}
	return l
}

// params adds to the parameters of a request what the era wants. 2026-07-28 "Per-request metadata": each request names the
// protocol version, the client and its capabilities.
func (l *link) params(params map[string]any) map[string]any {
	if l.era != eraModern {
		return params
	}
	all := map[string]any{"_meta": map[string]any{
		mcp.MetaKeyProtocolVersion:    l.version,
		mcp.MetaKeyClientInfo:         l.client,
		mcp.MetaKeyClientCapabilities: struct{}{},
	}}
	maps.Copy(all, params)
	return all
}

// headers returns the headers that 2026-07-28 wants for a method.
func (l *link) headers(method string) http.Header {
	h := http.Header{}
	if l.era == eraModern {
		h.Set(mcp.HeaderMethod, method)
	}
	return h
}

// pingMethod is the cheapest question that any server of the era answers.
func (l *link) pingMethod() string {
	if l.era == eraModern {
		return string(mcp.MethodServerDiscover)
	}
	return string(mcp.MethodPing)
}

// request returns the HTTP request for a JSON-RPC request, for those that don't go through mcp-go.
func (l *link) request(ctx context.Context, url, method string, id int64, params map[string]any) (*http.Request, error) {
	message := map[string]any{"jsonrpc": mcp.JSONRPC_VERSION, "id": id, "method": method}
	if p := l.params(params); p != nil {
		message["params"] = p
	}
	body, err := json.Marshal(message)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header = l.headers(method)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, text/event-stream")
	return req, nil
}
