package proxy

import (
	"context"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// oldMCPServer is a real server of the old transport.
func oldMCPServer(names ...string) process {
	s := mcpserver.NewMCPServer("backend", "1", mcpserver.WithToolCapabilities(true))
	p := mcpServer(names)

	for _, n := range names {
		s.AddTool(mcp.NewTool(n), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
			return mcp.NewToolResultText("ran " + n), nil
		})
	}

	p.handler = mcpserver.NewSSEServer(s, mcpserver.WithStaticBasePath("/team"))

	return p
}

// TestOldRealClient: a client of the old transport goes through three swaps.
func TestOldRealClient(t *testing.T) {
	r := oldRig(t)
	r.backend.start(oldMCPServer("tool-1"))

	c, err := client.NewSSEMCPClient(r.front.URL + "/c/conversation-1/team/sse")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = c.Close() }()

	var changed atomic.Int32

	c.OnNotification(func(n mcp.JSONRPCNotification) {
		if n.Method == methodListChanged {
			changed.Add(1)
		}
	})

	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	var init mcp.InitializeRequest

	init.Params.ProtocolVersion = "2024-11-05"
	init.Params.ClientInfo = mcp.Implementation{Name: "test", Version: "1"}

	if _, err := c.Initialize(t.Context(), init); err != nil {
		t.Fatal(err)
	}

	for round, name := range []string{"tool-1", "tool-2", "tool-3", "tool-4"} {
		if round > 0 {
			r.settled()
			r.swap(oldMCPServer(name))
		}

		var call mcp.CallToolRequest

		call.Params.Name = name

		result, err := c.CallTool(t.Context(), call)
		if err != nil || len(result.Content) == 0 {
			t.Fatalf("round %d: %v", round, err)
		}

		if text, ok := result.Content[0].(mcp.TextContent); !ok || !strings.Contains(text.Text, "ran "+name) {
			t.Errorf("round %d: %v", round, result.Content)
		}

		tools, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
		if err != nil || len(tools.Tools) != 1 || tools.Tools[0].Name != name {
			t.Errorf("round %d: %v %v", round, tools, err)
		}

		eventually(t, "the client was told", func() error {
			if n := changed.Load(); round > 0 && n == 0 {
				return errNotYet
			}

			return nil
		})

		if n := changed.Swap(0); n > 1 {
			t.Errorf("round %d: told %d times", round, n)
		}
	}

	if st := r.proxy.Stats()[0]; st.Sessions != 1 || st.Streams != 1 {
		t.Errorf("%+v", st)
	}

	seen, listed, lost := r.convs.all()
	if len(seen) == 0 || len(listed) != 4 || len(lost) != 0 || listed[3].ID != "conversation-1" || listed[3].Generation != 4 {
		t.Errorf("%d seen, %+v listed, %v lost", len(seen), listed, lost)
	}
}

func TestOldEndpoints(t *testing.T) {
	for name, address := range map[string]func(r *http.Request, id string) string{
		"relative": func(_ *http.Request, id string) string { return "message?sessionId=" + id },
		"path":     func(_ *http.Request, id string) string { return "/other/messages/?sessionId=" + id + "&a=%2F" },
		"URL":      func(r *http.Request, id string) string { return "http://" + r.Host + "/message?sessionId=" + id },
		"URL of localhost": func(r *http.Request, id string) string {
			return "http://localhost:" + port(r.Host) + "/message?sessionId=" + id
		},
		"as forwarded": func(r *http.Request, id string) string {
			return "https://" + r.Header.Get("X-Forwarded-Host") + "/message?sessionId=" + id
		},
	} {
		t.Run(name, func(t *testing.T) {
			stub := &oldStub{address: address}
			r := oldRig(t)
			r.backend.start(stub.process())

			c := r.connect("/c/conversation-1/team/sse")
			c.initialize(t)

			c.request(callBody(1, "a"))

			if result, _, _ := c.response(t, 1); !strings.Contains(result, "ran a") {
				t.Error(result)
			}

			if want := []string{"initialize", "notifications/initialized", "tools/call"}; !cmp.Equal(stub.got(), want) {
				t.Error(stub.got())
			}
		})
	}
}

func port(host string) string { return host[strings.LastIndexByte(host, ':')+1:] }
