package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

func (brokenBlobs) Blob(context.Context, string, string) ([]byte, error) { return nil, errBroken }

func (brokenBlobs) PutBlob(context.Context, string, string, []byte, time.Duration) error {
	return errBroken
}

// TestStatuses: what has a meaning of its own keeps it.
func TestStatuses(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.MaxBody = 1 << 20 })
	r.backend.start(process{handler: &stub{}})

	id := r.initialize()
	big := `{"jsonrpc":"2.0","id":1,"method":"x","params":{"a":"` + strings.Repeat("a", 2<<20) + `"}}`

	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		want                     int
	}{
		{"notification", "POST", "/mcp", `{"jsonrpc":"2.0","method":"notifications/x"}`, nil, 202},
		{"response", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"result":{}}`, nil, 202},
		{"slash", "POST", "/mcp/", `{"jsonrpc":"2.0","method":"notifications/x"}`, nil, 202},
		{"not JSON", "POST", "/mcp", `{`, nil, 400},
		{"empty", "POST", "/mcp", ``, nil, 400},
		{"two methods", "POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"a","Method":"b"}`, nil, 400},
		{"compressed", "POST", "/mcp", `{}`, []string{"Content-Encoding", "gzip"}, 415},
		{"large", "POST", "/mcp", big, nil, 413},
		{"foreign origin", "POST", "/mcp", listBody(1), []string{"Origin", "https://evil.example"}, 403},
		{"null origin", "POST", "/mcp", listBody(1), []string{"Origin", "null"}, 403},
		{"unknown path", "POST", "/nothing", listBody(1), nil, 404},
		{"bad conversation", "POST", "/c/a%20b/mcp", listBody(1), nil, 404},
		{"method", "PUT", "/mcp", ``, nil, 405},
		{"connection trick", "POST", "/mcp", listBody(1), []string{"Connection", "Mcp-Session-Id"}, 400},
	} {
		g := r.do(t.Context(), c.method, c.path, id, c.body, c.header...)
		if g.err != nil || g.status != c.want {
			t.Errorf("%s: %d %s %v", c.name, g.status, g.body, g.err)
		}

		if c.want == 202 && (g.body != "" || g.header.Get("Content-Type") != "") {
			t.Errorf("%s: %q %v", c.name, g.body, g.header)
		}
	}

	if g := r.do(t.Context(), "POST", "/nothing", "", ""); !strings.Contains(g.body, "/mcp") {
		t.Errorf("it isn't said what is served: %s", g.body)
	}
}

// TestPassThrough: without a session of the sidecar's own, requests pass as they
// are, and so do those of the revision without sessions.
func TestPassThrough(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprint(w, `{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"no session method"}}`)
	})})

	modern := `{"jsonrpc":"2.0","id":1,"method":"x","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28"}}}`
	for _, g := range []got{r.post("", modern, "Mcp-Method", "x", "Mcp-Param-A", "1"), r.post("whatever", modern), r.post("", callBody(1, "x"))} {
		if g.status != 404 || !strings.Contains(g.body, "-32601") {
			t.Errorf("%d %s", g.status, g.body)
		}
	}

	c := r.backend.calls(func(call) bool { return true })
	if c[0].header.Get("Mcp-Param-A") != "1" || c[1].session != "" {
		t.Errorf("%v, %v", c[0].header, c[1].session)
	}
}

// TestMetadata: authorization metadata comes from the backend.
func TestMetadata(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) })})

	for path, want := range map[string]string{
		"/.well-known/oauth-protected-resource":             "/.well-known/oauth-protected-resource",
		"/.well-known/oauth-protected-resource/mcp":         "/.well-known/oauth-protected-resource/mcp",
		"/.well-known/oauth-protected-resource/c/conv1/mcp": "/.well-known/oauth-protected-resource/mcp",
		"/.well-known/oauth-authorization-server":           "/.well-known/oauth-authorization-server",
		"/.well-known/openid-configuration":                 "/.well-known/openid-configuration",
	} {
		if g := r.do(t.Context(), http.MethodGet, path, "", ""); g.status != 200 || g.body != want {
			t.Errorf("%s: %d %s", path, g.status, g.body)
		}
	}
}

// TestExpectAndChunked: bodies come whole, however they are framed, also when they
// are held.
func TestExpectAndChunked(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &stub{}})

	id := r.initialize()
	r.settled()

	body := `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"` + strings.Repeat("n", 2<<20) + `"}}`
	send := func(header http.Header, chunked bool) {
		var reader io.Reader = strings.NewReader(body)
		if chunked {
			reader = struct{ io.Reader }{reader}
		}

		req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, r.front.URL+"/mcp", reader)
		req.Header = header
		req.Header.Set("Mcp-Session-Id", id)
		req.Header.Set("Content-Type", "application/json")

		resp, err := (&http.Transport{ExpectContinueTimeout: 10 * time.Second, DisableKeepAlives: true}).RoundTrip(req)
		if err != nil {
			t.Error(err)
			return
		}
		defer resp.Body.Close()

		if b, err := io.ReadAll(resp.Body); err != nil || resp.StatusCode != http.StatusOK || len(b) < 2<<20 {
			t.Errorf("%d, %d bytes, %v", resp.StatusCode, len(b), err)
		}
	}

	send(http.Header{"Expect": {"100-continue"}}, false)
	r.backend.kill()

	var wg sync.WaitGroup

	wg.Go(func() { send(http.Header{}, true) })
	eventually(t, "the request is held", func() error {
		if n := r.proxy.Stats()[0].Held; n != 1 {
			return fmt.Errorf("%d are", n)
		}

		return nil
	})
	r.backend.start(process{handler: &stub{prefix: "two-"}})
	wg.Wait()
}

// TestSlowBody: a client that takes its time with the body is sent away, and one
// whose call takes long isn't.
func TestSlowBody(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.BodyTimeout = 500 * time.Millisecond })
	leave := make(chan struct{})
	s := &stub{}
	s.handle = func(_ http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Params.Name == "long" {
			<-leave
		}

		return false
	}
	r.backend.start(process{handler: s})

	id := r.initialize()

	var wg sync.WaitGroup

	wg.Go(func() {
		if g := r.post(id, callBody(1, "long")); g.status != http.StatusOK || !strings.Contains(g.body, "ran long") {
			t.Errorf("a long call: %d %s %v", g.status, g.body, g.err)
		}
	})

	for name, framing := range map[string]string{"length": "Content-Length: 500\r\n\r\n{", "chunked": "Transfer-Encoding: chunked\r\n\r\n1\r\n{"} {
		conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}

		fmt.Fprintf(conn, "POST /mcp HTTP/1.1\r\nHost: %s\r\nMcp-Session-Id: %s\r\n%s", r.front.Listener.Addr(), id, framing)

		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}

		if resp.StatusCode != http.StatusRequestTimeout || !resp.Close {
			t.Errorf("%s: %d %v", name, resp.StatusCode, resp.Header)
		}

		_ = resp.Body.Close()
		_ = conn.Close()
	}

	close(leave) // later than the body of the call could have come
	wg.Wait()
}

// TestInitializeOverEventStream: the result is edited and the session is made also
// when the answer is an event stream.
func TestInitializeOverEventStream(t *testing.T) {
	r := newRig(t)
	s := &stub{}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Method == methodInitialize {
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, ": hi\n\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{}},\"x\":1.0}}\n\n")
		}

		return m.Method == methodInitialize
	}
	r.backend.start(process{handler: s})

	g := r.post("", initBody)
	want := ": hi\n\nid: 1\ndata: {\"jsonrpc\":\"2.0\",\"id\":0,\"result\":{\"protocolVersion\":\"2025-06-18\",\"capabilities\":{\"tools\":{\"listChanged\":true}},\"x\":1.0}}\n\n"

	if diff := cmp.Diff(want, g.body); diff != "" || g.header.Get("Mcp-Session-Id") == "" {
		t.Errorf("%s %v", diff, g.header)
	}
}

// TestNoticesForANotification: a server that has something to say while it gets a
// message that wants no answer may say it there, as an event stream. What the sidecar
// keeps of that leaves 202, and the backend is in no doubt.
func TestNoticesForANotification(t *testing.T) {
	const other = "event: message\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{\"level\":\"info\",\"data\":1}}\n\n"

	r := newRig(t)
	events := make(chan string, 1)
	s := &stub{}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Method != "notifications/x" {
			return false
		}

		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(http.StatusOK)
		_ = http.NewResponseController(w).Flush()
		fmt.Fprint(w, <-events)

		return true
	}
	r.backend.start(process{handler: s})

	id := r.initialize()
	r.settled()
	r.listen(id)

	for sent, want := range map[string]got{
		"data: " + listChanged + "\n\n":         {status: http.StatusAccepted},
		"":                                      {status: http.StatusAccepted},
		"data: " + listChanged + "\n\n" + other: {status: http.StatusOK, body: other},
	} {
		events <- sent

		if g := r.post(id, `{"jsonrpc":"2.0","method":"notifications/x"}`); g.status != want.status || g.body != want.body {
			t.Errorf("%q becomes %d %q", sent, g.status, g.body)
		}
	}

	if calls := r.backend.count(1, "notifications/x"); calls != 3 {
		t.Errorf("the backend got %d notifications, want 3", calls)
	}
}

// TestBatch: a batch passes as it is, and its requests are failed together.
func TestBatch(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.Servers[0].Hold = 50 * time.Millisecond })
	s := &stub{}
	answer := `[{"jsonrpc":"2.0","id":1,"result":{}},{"jsonrpc":"2.0","id":2,"result":{}}]`
	s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Method == "" {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, answer)
		}

		return m.Method == ""
	}
	r.backend.start(process{handler: s})

	id := r.initialize()
	batch := `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","id":2,"method":"ping"}]`

	if g := r.post(id, batch); g.body != answer {
		t.Errorf("%d %s", g.status, g.body)
	}

	r.settled()
	r.backend.kill()

	if g := r.post(id, batch); g.status != 200 || strings.Count(g.body, strconv.Itoa(CodeBackendAway)) != 2 || !strings.HasPrefix(g.body, `[{`) {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// TestTruncatedRequest: a client that breaks off is nobody's failure, and nothing
// of it reaches the backend.
func TestTruncatedRequest(t *testing.T) {
	r := newRig(t)
	r.backend.start(process{handler: &stub{}})

	id := r.initialize()

	conn, err := net.Dial("tcp", r.front.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}

	c, ok := conn.(*net.TCPConn)
	if !ok {
		t.Fatalf("%T", conn)
	}

	fmt.Fprintf(c, "POST /mcp HTTP/1.1\r\nHost: %s\r\nMcp-Session-Id: %s\r\nContent-Length: 500\r\n\r\n{\"jsonrpc\"", r.front.Listener.Addr(), id)
	_ = c.CloseWrite()

	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err == nil {
		_ = resp.Body.Close()

		if resp.StatusCode != http.StatusBadRequest {
			t.Errorf("%d", resp.StatusCode)
		}
	}

	_ = c.Close()

	if n := r.backend.count(1, methodCall); n != 0 {
		t.Errorf("%d calls", n)
	}
}

// TestMetrics: every series is there from the start, and well formed.
func TestMetrics(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	m := NewMetrics(reg)
	m.Init("default")

	if problems, err := testutil.GatherAndLint(reg); err != nil || len(problems) > 0 {
		t.Errorf("%v %v", problems, err)
	}

	for _, c := range []prometheus.Collector{m.reinits, m.replays, m.held, m.sessions, m.streams, m.holdTime} {
		if testutil.CollectAndCount(c) == 0 {
			t.Errorf("nothing of %T", c)
		}
	}

	if n := testutil.CollectAndCount(m.requests); n == 0 {
		t.Error("no requests")
	}

	m.Init("default") // twice is harmless
}
