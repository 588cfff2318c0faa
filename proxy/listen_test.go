package proxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
	"github.com/prometheus/client_golang/prometheus/testutil"
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

// TestRefusedSubscription: what the sidecar can't serve is the backend's answer.
func TestRefusedSubscription(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &subscriptionStub{}})

	g := r.modern("5", methodListen, `"notifications":{"promptsListChanged":true}`)
	if g.status != http.StatusNotFound || g.body != `{"jsonrpc":"2.0","id":5,"error":{"code":-32601,"message":"Method not found"}}` {
		t.Errorf("got %d %s", g.status, g.body)
	}

	// It promises nothing, and ends it.
	next := &subscriptionStub{filter: `{}`}
	r.swap(process{handler: next})

	l := r.subscribe("6", `{"resourcesListChanged":true}`)
	l.acked(t, "6")
	next.opened(t, 1)
	next.send(`{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","_meta":{`+keySubscription+`:ID},"x":1e2}}`, "")
	l.next(t, `"x":1e2`)
	l.end(t)
}

// TestGracefulEndOfBackend: a server that is stopped may end its subscriptions,
// after which many clients would never hear of anything again.
func TestGracefulEndOfBackend(t *testing.T) {
	r := newRig(t)
	first := &subscriptionStub{filter: toolsOnly}
	r.backend.start(process{handler: first, tools: tools("a")})
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	// What it leaves open is closed.
	first.send(`{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","_meta":{` + keySubscription + `:ID}}}`)
	first.opened(t, 2)
	first.closed(t, 1)
	first.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":ID}}`, "")
	first.opened(t, 3)
	first.send("") // ends without a word
	first.opened(t, 4)

	r.swap(process{handler: &subscriptionStub{filter: toolsOnly}, tools: tools("b")})
	l.changed(t, "1")
	l.none(t)
}

func TestStormOfNotices(t *testing.T) {
	r := newRig(t)
	s := &subscriptionStub{filter: toolsOnly}
	r.backend.start(process{handler: s, tools: tools("a")})
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	for range 200 {
		s.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{` + keySubscription + `:ID}}}`)
	}

	s.send(`{"jsonrpc":"2.0","method":"notifications/other"}`)

	// Everything before it has been read by now, and is told at last.
	notices := 0

	for seen := false; !seen || notices == 0; {
		switch m := l.message(t); m.Method {
		case methodListChanged:
			notices++
		default:
			seen = true
		}
	}

	if notices > 3 {
		t.Errorf("%d notices", notices)
	}
}

// TestLoopOfNotices: a server that gives notice of every listing, and a client that
// lists after every notice.
func TestLoopOfNotices(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.NoticeQuiet = 20 * time.Millisecond })
	s := &subscriptionStub{filter: toolsOnly}
	s.list = func() { s.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`) }
	r.backend.start(process{handler: s, tools: tools("a")})
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")
	s.opened(t, 1)

	rounds := 0

	for quiet := false; !quiet && rounds < 10; {
		r.modern("2", methodList, "")

		rounds++

		select {
		case <-l.events:
		case <-time.After(noticeCause):
			quiet = true
		}
	}

	if rounds > 3 {
		t.Errorf("%d rounds", rounds)
	}
}

func TestHeldSubscription(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.HeldComment, c.KeepAlive = time.Millisecond, 10*time.Millisecond })
	_, first := liveServer("a")
	r.backend.start(first)
	r.settled()
	r.backend.kill()

	l := r.subscribe("1", toolsOnly) // has its header although nobody is there
	l.none(t)

	_, next := liveServer("b")
	r.backend.start(next)

	l.acked(t, "1")
	l.changed(t, "1") // what happened while it was held
	l.none(t)
}

func TestSubscriptionHeldInVain(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.Servers[0].Hold = 50 * time.Millisecond })

	g := r.modern("1", methodListen, `"notifications":`+toolsOnly)
	if id, _, code, _ := g.rpc(t); g.status != http.StatusOK || id != "1" || code != CodeBackendAway {
		t.Errorf("got %d %s", g.status, g.body)
	}
}

// TestSubscriptionsEndWithTheSidecar: clients subscribe elsewhere.
func TestSubscriptionsEndWithTheSidecar(t *testing.T) {
	m := NewMetrics(nil)
	r := newRig(t, func(_ *Config, d *Deps, _ *rig) { d.Metrics = m })
	_, p := liveServer("a")
	r.backend.start(p)
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	gauges := func() string {
		return fmt.Sprint(r.proxy.Stats()[0].Streams, testutil.ToFloat64(m.streams), testutil.ToFloat64(m.inFlight))
	}

	eventually(t, "it is counted", func() error { // after the client has its acknowledgement
		if g := gauges(); g != "1 1 0" {
			return fmt.Errorf("streams and requests: %s", g)
		}

		return nil
	})

	r.proxy.Quiesce()
	l.over(t, "1")

	// Until the end it is served all the same.
	l = r.subscribe("2", toolsOnly)
	l.acked(t, "2")

	if err := r.proxy.Drain(t.Context()); err != nil {
		t.Error(err)
	}

	l.over(t, "2")

	l = r.subscribe("3", toolsOnly)
	l.acked(t, "3")
	l.over(t, "3")

	if g := gauges(); g != "0 0 0" {
		t.Errorf("streams and requests: %s", g)
	}
}

// TestRevokedSubscription: the client learns why from the answer to its next
// request.
func TestRevokedSubscription(t *testing.T) {
	for name, refuse := range map[string]func(w http.ResponseWriter) bool{
		"credentials": func(w http.ResponseWriter) bool { http.Error(w, "no", http.StatusUnauthorized); return true },
		"revision": func(w http.ResponseWriter) bool {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"no"}}`)

			return true
		},
		"not found": func(w http.ResponseWriter) bool { http.Error(w, "no", http.StatusNotFound); return true },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.backend.start(process{handler: &subscriptionStub{filter: toolsOnly}, tools: tools("a")})
			r.settled()

			l := r.subscribe("1", toolsOnly)
			l.acked(t, "1")

			r.swap(process{handler: &subscriptionStub{refuse: refuse}, tools: tools("b")})
			l.changed(t, "1")
			l.over(t, "1")
		})
	}
}

// TestSubscriptionOutlivesStart: a process that isn't ready is asked again.
func TestSubscriptionOutlivesStart(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &subscriptionStub{filter: toolsOnly}, tools: tools("a")})
	r.settled()

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")

	var (
		mu    sync.Mutex
		tries int
	)

	next := &subscriptionStub{filter: toolsOnly, refuse: func(w http.ResponseWriter) bool {
		mu.Lock()
		defer mu.Unlock()

		if tries++; tries > 3 {
			return false
		}

		http.Error(w, "starting", http.StatusServiceUnavailable)

		return true
	}}
	r.swap(process{handler: next, tools: tools("a")})
	r.settled()
	next.opened(t, 1)
	next.send(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`)
	l.changed(t, "1")
	l.none(t)
}

// TestLeavingCancels: in this revision that cancels.
func TestLeavingCancels(t *testing.T) {
	r := newRig(t)
	s := &subscriptionStub{filter: toolsOnly}
	entered, left := make(chan struct{}), make(chan struct{})

	r.backend.start(process{handler: http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		req.Body = io.NopCloser(bytes.NewReader(body))

		if !bytes.Contains(body, []byte(methodCall)) {
			s.ServeHTTP(w, req)
			return
		}

		close(entered)
		<-req.Context().Done()
		close(left)
	})})

	l := r.subscribe("1", toolsOnly)
	l.acked(t, "1")
	l.cancel()
	s.closed(t, 1)

	ctx, cancel := context.WithCancel(t.Context())

	go func() {
		<-entered
		cancel()
	}()

	if g := r.do(ctx, http.MethodPost, "/mcp", "", modernBody("2", methodCall, `"name":"a"`), modernHeader(methodCall)...); g.err == nil {
		t.Errorf("got %d %s", g.status, g.body)
	}

	<-left

	eventually(t, "nothing is left", func() error {
		if n := r.proxy.Stats()[0].Streams; n != 0 {
			return fmt.Errorf("%d streams", n)
		}

		return nil
	})
}
