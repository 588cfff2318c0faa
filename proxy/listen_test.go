package proxy

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

func TestSubscriptionOverSwaps(t *testing.T) {
	r := newRig(t)
	_, first := liveServer("a")
	r.backend.start(first)
	r.settled()

	ids := []string{`"sub-1"`, `7`}

	var subs []*listening

	for _, id := range ids {
		l := r.subscribe(id, `{"toolsListChanged":true,"promptsListChanged":true}`, "Authorization", "Bearer x", "Mcp-Param-A", "=?base64?w6k=?=")
		if f := l.acked(t, id); f[toolsChanged] != true || f["promptsListChanged"] != true {
			t.Errorf("acknowledged %v", f)
		}

		subs = append(subs, l)
	}

	var live *mcpserver.MCPServer

	for _, name := range []string{"b", "c"} {
		var next process

		live, next = liveServer(name)
		r.swap(next)
		r.settled() // a subscription that has no stream at the moment doesn't notice the swap

		for i, l := range subs {
			l.changed(t, ids[i])
		}
	}

	// What else the new process has to tell comes as soon as it is subscribed to.
	for _, l := range subs {
		eventually(t, "a notice of the process", func() error {
			live.AddPrompt(mcp.NewPrompt("p"), nil)

			select {
			case e := <-l.events:
				if !strings.Contains(e, `"method":"notifications/prompts/list_changed"`) {
					t.Errorf("got %s", e)
				}

				return nil
			default:
				return errors.New("none")
			}
		})
	}

	for _, c := range r.backend.calls(func(c call) bool { return c.method == methodListen }) {
		if c.id != ids[0] && c.id != ids[1] || c.body != modernBody(c.id, methodListen, `"notifications":{"toolsListChanged":true,"promptsListChanged":true}`) {
			t.Errorf("sent %s", c.body)
		}

		if c.header.Get("Authorization") != "Bearer x" || c.header.Get("Mcp-Param-A") != "=?base64?w6k=?=" || c.header.Get("Mcp-Method") != methodListen {
			t.Errorf("sent %v", c.header)
		}
	}

	// No second acknowledgement, and no second notice of the tools.
	for _, l := range subs {
		for len(l.events) > 0 {
			if e := <-l.events; !strings.Contains(e, "prompts") {
				t.Errorf("got %s", e)
			}
		}
	}
}

// TestChangeWithoutSwap: the backend's own notice and the sidecar's are one.
func TestChangeWithoutSwap(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.NoticeQuiet = 300 * time.Millisecond })
	live, p := liveServer("a")
	r.backend.start(p)
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	addTool(live, "b")
	r.backend.mu.Lock()
	r.backend.proc.tools = tools("a", "b")
	r.backend.mu.Unlock()
	r.settled()

	l.changed(t, "1")

	// The next message is about something else.
	addTool(live, "c")
	l.changed(t, "1")
	l.none(t)
}

func TestBothErasOverASwap(t *testing.T) {
	r := newRig(t)
	_, first := liveServer("a")
	r.backend.start(first)

	session := r.initialize()
	r.settled()

	old := r.listen(session)
	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	if g := r.modern("2", methodList, ""); g.status != http.StatusOK || g.header.Get("Mcp-Session-Id") != "" {
		t.Errorf("list: %d %v %s", g.status, g.header, g.body)
	}

	_, next := liveServer("b")
	r.swap(next)

	old.next(t, `"method":"notifications/tools/list_changed"}`)
	l.changed(t, "1")

	for _, g := range []got{r.post(session, listBody(3)), r.modern("3", methodList, "")} {
		if id, result, _, _ := g.rpc(t); id != "3" || !strings.Contains(string(result), `"b"`) {
			t.Errorf("list: %d %s", g.status, g.body)
		}
	}

	if n := r.backend.count(2, methodInitialize); n != 1 {
		t.Errorf("%d initialize", n)
	}

	old.none(t)
	l.none(t)
}

func TestNarrowerAcknowledgement(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &subscriptionStub{filter: `{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["u","v"]}`}, tools: tools("a")})
	r.settled()

	l := r.subscribe(`"x"`, `{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["u","v"]}`)
	l.acked(t, `"x"`)

	// As much, in another order: nothing to see.
	second := &subscriptionStub{filter: `{"resourceSubscriptions":["v","u"],"promptsListChanged":true}`}
	r.swap(process{handler: second, tools: tools("a")})
	r.settled()
	second.opened(t, 1)
	second.send(`{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{` + keySubscription + `:ID}}}`)
	l.next(t, `{"jsonrpc":"2.0","method":"notifications/prompts/list_changed","params":{"_meta":{`+keySubscription+`:"x"}}}`)

	// Less: the client is told of the tools before it has to subscribe anew.
	r.swap(process{handler: &subscriptionStub{filter: `{"toolsListChanged":true,"promptsListChanged":true,"resourceSubscriptions":["u"]}`}, tools: tools("b")})
	l.changed(t, `"x"`)
	l.over(t, `"x"`)
}

func TestBackendWithoutSubscriptions(t *testing.T) {
	for name, handler := range map[string]*subscriptionStub{
		"no such method": {},
		"not of tools":   {filter: `{}`},
		"nothing at all": {filter: `null`},
		"not of these":   {filter: `{"toolsListChanged":false}`},
		"result, no more": {refuse: func(w http.ResponseWriter) bool {
			(&stub{}).result(w, stubMessage{ID: json.RawMessage("1")}, `{}`)
			return true
		}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.backend.start(process{handler: handler, tools: tools("a")})
			r.settled()

			l := r.subscribe("1", toolsOnly)
			if f := l.acked(t, "1"); f[toolsChanged] != true || len(f) != 1 {
				t.Errorf("acknowledged %v", f)
			}

			// The process ends what it doesn't serve.
			if handler.filter != "" {
				handler.send(`{"jsonrpc":"2.0","id":ID,"result":{}}`)
			}

			r.swap(process{handler: &subscriptionStub{}, tools: tools("b")})
			r.settled()
			l.changed(t, "1")

			// A process that has them is asked again.
			last := &subscriptionStub{filter: toolsOnly}
			r.swap(process{handler: last, tools: tools("c")})
			r.settled()
			l.changed(t, "1")
			last.opened(t, 1)
			last.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
			l.changed(t, "1")
			l.none(t)

			if n := r.backend.count(1, methodListen); n != 1 {
				t.Errorf("asked %d times for what isn't there", n)
			}
		})
	}
}

// TestRealSubscriber: a client that never subscribes again.
func TestRealSubscriber(t *testing.T) {
	r := newRig(t)
	_, first := liveServer("a")
	r.backend.start(first)
	r.settled()

	c, err := client.NewStreamableHttpClient(r.front.URL + "/mcp")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = c.Close() }()

	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}

	var init mcp.InitializeRequest

	init.Params.ClientInfo = mcp.Implementation{Name: "test", Version: "1"}

	result, err := c.Initialize(t.Context(), init)
	if err != nil || result.ProtocolVersion != modernVersion {
		t.Fatal(result, err)
	}

	changed, failed := make(chan string, 10), make(chan error, 1)

	c.OnNotification(func(n mcp.JSONRPCNotification) { changed <- n.Method })

	stop, err := c.ListenAsync(t.Context(), mcp.SubscriptionFilter{ToolsListChanged: true}, func(err error) { failed <- err })
	if err != nil {
		t.Fatal(err)
	}

	defer stop()

	for _, want := range []string{methodAcknowledged, "b", "c"} {
		if want != methodAcknowledged {
			_, next := liveServer(want)
			r.swap(next)
		}

		select {
		case m := <-changed:
			if m != want && m != methodListChanged {
				t.Errorf("got %s", m)
			}
		case err := <-failed:
			t.Fatal(err)
		case <-time.After(10 * time.Second):
			t.Fatal("no notice")
		}

		list, err := c.ListTools(t.Context(), mcp.ListToolsRequest{})
		if err != nil || want != methodAcknowledged && list.Tools[0].Name != want {
			t.Errorf("got %v %v", list, err)
		}
	}
}
