package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
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

// TestOldAlone: without anybody who says when the backend is back, it is tried.
func TestOldAlone(t *testing.T) {
	r := oldRig(t, func(_ *Config, d *Deps, r *rig) {
		d.Suspect = nil
		r.blind = true
	})
	r.backend.start((&oldStub{}).process())

	c := r.connect("/team/sse")
	c.initialize(t)

	for round := range 3 {
		r.backend.kill()
		c.request(callBody(10+round, "a"))

		if round == 1 {
			c.request(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11}}`)
		}

		second := &oldStub{}
		r.backend.start(second.process())

		if round != 1 {
			if result, code, _ := c.response(t, 10+round); code != 0 {
				t.Error(result, code)
			}
		}
	}

	c.none(t)
}

// TestOldMoved: a session moves with the backend's address.
func TestOldMoved(t *testing.T) {
	r := oldRig(t)
	r.backend.start((&oldStub{}).process())

	c := r.connect("/team/sse")
	c.initialize(t)
	r.settled()

	stub := &oldStub{}
	other := httptest.NewServer(stub)

	t.Cleanup(other.Close)

	cfg := *r.proxy.config()
	cfg.Servers = slices.Clone(cfg.Servers)

	to, err := url.Parse(other.URL + "/new/sse")
	if err != nil {
		t.Fatal(err)
	}

	cfg.Servers[0].Upstream = to

	if err := r.proxy.Update(cfg); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the session is there", func() error {
		if !slices.Contains(stub.got(), methodInitialized) {
			return errNotYet
		}

		return nil
	})
	c.request(callBody(1, "a"))

	if result, code, _ := c.response(t, 1); code != 0 {
		t.Error(result, code)
	}

	// And it ends with the transport.
	cfg.Servers = slices.Clone(cfg.Servers)
	cfg.Servers[0].Transport = TransportStreamableHTTP

	if err := r.proxy.Update(cfg); err != nil {
		t.Fatal(err)
	}

	c.end(t)
	eventually(t, "the backend's stream is gone", func() error {
		if stub.open() != 0 {
			return errNotYet
		}

		return nil
	})
}

func FuzzMessageURL(f *testing.F) {
	for _, ref := range []string{"message?sessionId=1", "/m", "//h/m", "http://h:1/m", "http://b:1/%2F?a", "?a", "", "\r\n", "http://b:1@h/"} {
		f.Add(ref)
	}

	stream := &http.Request{URL: &url.URL{Scheme: "http", Host: "b:1", Path: "/team/sse"}, Host: "b:1"}

	f.Fuzz(func(t *testing.T, ref string) {
		to, err := messageURL(stream, ref)
		if err != nil {
			return
		}

		if to.Host != "b:1" || to.Scheme != "http" || to.User != nil || !strings.HasPrefix(to.RequestURI(), "/") {
			t.Errorf("%q leads to %v", ref, to)
		}
	})
}

// TestOldMany: more sessions than are re-opened at one time, each with one
// handshake.
func TestOldMany(t *testing.T) {
	const clients = 3 * reopenAtOnce

	r := oldRig(t)
	r.backend.start((&oldStub{}).process())

	all := make([]*oldClient, clients)
	for i := range all {
		all[i] = r.connect("/team/sse")
		all[i].initialize(t)
	}

	r.settled()
	r.swap((&oldStub{}).process())

	for i, c := range all {
		c.request(callBody(i, "a"))
	}

	for i, c := range all {
		if result, code, _ := c.response(t, i); code != 0 {
			t.Error(result, code)
		}
	}

	if n := r.backend.count(2, methodInitialize); n != clients {
		t.Errorf("%d initialize for %d sessions", n, clients)
	}
}
