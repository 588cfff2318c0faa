package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// reply is what a client got.
type got struct {
	status int
	header http.Header
	body   string
	err    error
}

func (r *rig) do(ctx context.Context, method, path, session, body string, header ...string) got {
	req, err := http.NewRequestWithContext(ctx, method, r.front.URL+path, strings.NewReader(body))
	if err != nil {
		return got{err: err}
	}

	if method == http.MethodPost {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
	}

	if session != "" {
		req.Header.Set("Mcp-Session-Id", session)
	}

	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	resp, err := r.front.Client().Do(req)
	if err != nil {
		return got{err: err}
	}
	defer resp.Body.Close()

	b, err := io.ReadAll(resp.Body)

	return got{resp.StatusCode, resp.Header, string(b), err}
}

func (r *rig) post(session, body string, header ...string) got {
	r.t.Helper()

	g := r.do(r.t.Context(), http.MethodPost, "/mcp", session, body, header...)
	if g.err != nil {
		r.t.Error(g.err)
	}

	return g
}

const initBody = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{"roots":{}},"clientInfo":{"name":"test","version":"1"}}}`

// initialize begins a session as a client does.
func (r *rig) initialize(header ...string) string {
	r.t.Helper()

	g := r.post("", initBody, header...)

	id := g.header.Get("Mcp-Session-Id")
	if g.status != 200 || id == "" {
		r.t.Fatalf("initialize: %d %q %s", g.status, id, g.body)
	}

	if g := r.post(id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, header...); g.status != 202 {
		r.t.Fatalf("initialized: %d %s", g.status, g.body)
	}

	return id
}

// rpc reads the JSON-RPC response out of a JSON body or an event stream.
func (g got) rpc(t *testing.T) (id string, result json.RawMessage, code int, data map[string]any) {
	t.Helper()

	body := g.body
	if strings.HasPrefix(g.header.Get("Content-Type"), "text/event-stream") {
		body = ""

		for line := range strings.SplitSeq(g.body, "\n") {
			if d, ok := strings.CutPrefix(line, "data: "); ok && (strings.Contains(d, `"result"`) || strings.Contains(d, `"error"`)) {
				body = d
			}
		}
	}

	var m struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *struct {
			Code int
			Data map[string]any
		}
	}
	if err := json.Unmarshal([]byte(body), &m); err != nil {
		t.Errorf("no JSON-RPC response in HTTP %d %q: %v", g.status, g.body, err)
		return "", nil, 0, nil
	}

	if m.Error != nil {
		return string(m.ID), nil, m.Error.Code, m.Error.Data
	}

	return string(m.ID), m.Result, 0, nil
}

func listBody(id int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/list","params":{}}`, id)
}

func callBody(id int, tool string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":{}}}`, id, tool)
}
