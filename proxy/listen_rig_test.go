package proxy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// modernBody is a request of the stateless revision; params are its members but
// for _meta.
func modernBody(id, method, params string) string {
	if params != "" {
		params = "," + params
	}

	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":%q,"params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",`+
		`"io.modelcontextprotocol/clientCapabilities":{}}%s}}`, id, method, params)
}

// modern sends one.
func (r *rig) modern(id, method, params string, header ...string) got {
	r.t.Helper()

	return r.post("", modernBody(id, method, params), append(modernHeader(method), header...)...)
}

func modernHeader(method string) []string {
	return []string{"Mcp-Protocol-Version", modernVersion, "Mcp-Method", method}
}

// subscribe opens a subscription.
func (r *rig) subscribe(id, filter string, header ...string) *listening {
	r.t.Helper()

	ctx, cancel := context.WithCancel(r.t.Context())

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, r.front.URL+"/mcp",
		strings.NewReader(modernBody(id, methodListen, `"notifications":`+filter)))
	if err != nil {
		r.t.Fatal(err)
	}

	header = append(modernHeader(methodListen), header...)
	header = append(header, "Content-Type", "application/json", "Accept", "application/json, text/event-stream")

	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	return r.follow(req, cancel)
}

// message waits for a message and reads it.
func (l *listening) message(t *testing.T) (m struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Meta          map[string]json.RawMessage `json:"_meta"`
		Notifications map[string]any
	}
	Result struct {
		ResultType string
		Meta       map[string]json.RawMessage `json:"_meta"`
	}
},
) {
	t.Helper()

	e, err := l.event()
	if err != nil {
		t.Fatalf("no message: %v", err)
	}

	if err := json.Unmarshal([]byte(e), &m); err != nil {
		t.Fatalf("%s: %v", e, err)
	}

	return m
}

const subscriptionKey = "io.modelcontextprotocol/subscriptionId"

// acked waits for the acknowledgement and returns what it promises.
func (l *listening) acked(t *testing.T, id string) map[string]any {
	t.Helper()

	m := l.message(t)
	if m.Method != methodAcknowledged || string(m.Params.Meta[subscriptionKey]) != id {
		t.Errorf("got %+v, want the acknowledgement of %s", m, id)
	}

	return m.Params.Notifications
}

// changed waits for a notice of a changed tool list.
func (l *listening) changed(t *testing.T, id string) {
	t.Helper()

	m := l.message(t)
	if m.Method != methodListChanged || string(m.Params.Meta[subscriptionKey]) != id {
		t.Errorf("got %+v, want list_changed for %s", m, id)
	}
}

// over waits for the graceful end.
func (l *listening) over(t *testing.T, id string) {
	t.Helper()

	m := l.message(t)
	if string(m.ID) != id || m.Result.ResultType != "complete" || string(m.Result.Meta[subscriptionKey]) != id {
		t.Errorf("got %+v, want the result of %s", m, id)
	}

	l.end(t)
}

// liveServer is a real server that can be changed while it runs.
func liveServer(names ...string) (*mcpserver.MCPServer, process) {
	s := mcpserver.NewMCPServer("backend", "1", mcpserver.WithToolCapabilities(true), mcpserver.WithPromptCapabilities(true))

	var hints []ToolHints

	for _, n := range names {
		addTool(s, n)

		hints = append(hints, ToolHints{Name: n, Digest: n})
	}

	return s, process{handler: mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStateful(true)), tools: hints}
}

func addTool(s *mcpserver.MCPServer, name string) {
	s.AddTool(mcp.NewTool(name), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		return mcp.NewToolResultText("ran " + name), nil
	})
}

// subscriptionStub is a server whose subscriptions a test controls.
type subscriptionStub struct {
	filter string // that it honours; "" has no subscriptions
	refuse func(w http.ResponseWriter) bool
	list   func()

	mu   sync.Mutex
	open []chan string
	left int
}

func (s *subscriptionStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var m stubMessage

	body, _ := io.ReadAll(r.Body)
	_ = json.Unmarshal(body, &m)

	switch {
	case m.Method == methodList:
		if s.list != nil {
			s.list()
		}

		(&stub{}).result(w, m, `{"tools":[{"name":"a"}]}`)

		return
	case m.Method != methodListen:
		(&stub{}).result(w, m, `{}`)
		return
	case s.refuse != nil && s.refuse(w):
		return
	case s.filter == "":
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"Method not found"}}`, m.ID)

		return
	}

	events := make(chan string, 500)

	s.mu.Lock()
	s.open = append(s.open, events)
	s.mu.Unlock()

	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()

		s.left++
	}()

	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"method\":%q,\"params\":{\"_meta\":{%s:%s},\"notifications\":%s}}\n\n",
		methodAcknowledged, keySubscription, m.ID, s.filter)

	for {
		_ = http.NewResponseController(w).Flush()

		select {
		case e := <-events:
			if e == "" {
				return
			}

			fmt.Fprintf(w, "data: %s\n\n", strings.ReplaceAll(e, "ID", string(m.ID)))
		case <-r.Context().Done():
			return
		}
	}
}

// send sends on the newest stream; "" ends it.
func (s *subscriptionStub) send(events ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, e := range events {
		s.open[len(s.open)-1] <- e
	}
}

// opened waits until there were n streams at least: one that was opened to a new
// process before the verdict on it is opened again after it.
func (s *subscriptionStub) opened(t *testing.T, n int) {
	t.Helper()
	eventually(t, "the backend has a stream", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()

		if len(s.open) < n {
			return fmt.Errorf("%d were opened, want %d", len(s.open), n)
		}

		return nil
	})
}

// closed waits until n streams have ended.
func (s *subscriptionStub) closed(t *testing.T, n int) {
	t.Helper()
	eventually(t, "the backend's stream is closed", func() error {
		s.mu.Lock()
		defer s.mu.Unlock()

		if s.left != n {
			return fmt.Errorf("%d are, want %d", s.left, n)
		}

		return nil
	})
}

const toolsOnly = `{"toolsListChanged":true}`

func tools(names ...string) (hints []ToolHints) {
	for _, n := range names {
		hints = append(hints, ToolHints{Name: n, Digest: n})
	}

	return hints
}
