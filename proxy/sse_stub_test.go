package proxy

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// oldStub is a small server of the transport of 2024-11-05 which insists on the
// order of the handshake.
type oldStub struct {
	// address is what the endpoint event says; the default is relative.
	address func(r *http.Request, id string) string
	// call answers requests that it doesn't answer by itself; the default is that
	// the tool ran.
	call func(s *oldSession, m stubMessage)
	// version is what initialize agrees on, if not what the client asks for.
	version string

	mu       sync.Mutex
	sessions map[string]*oldSession
	log      []string // methods in the order in which they came
}

type oldSession struct {
	stub   *oldStub
	id     string
	events chan string
	done   <-chan struct{}

	state int // 0 nothing, 1 initialize, 2 initialized
}

func (s *oldStub) process(tools ...ToolHints) process { return process{handler: s, tools: tools} }

func (s *oldStub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		s.stream(w, r)
		return
	}

	s.mu.Lock()
	sess := s.sessions[r.URL.Query().Get("sessionId")]
	s.mu.Unlock()

	if sess == nil || !strings.Contains(r.URL.Path, "message") {
		http.Error(w, "Invalid session ID", http.StatusBadRequest)
		return
	}

	body, _ := io.ReadAll(r.Body)

	var m stubMessage

	_ = json.Unmarshal(body, &m)

	if text := sess.refuse(m.Method); text != "" {
		http.Error(w, text, http.StatusBadRequest)
		return
	}

	w.WriteHeader(http.StatusAccepted)

	if f, ok := w.(http.Flusher); ok {
		f.Flush()
	}

	if m.ID == nil || m.Method == "" {
		return
	}

	sess.answer(m)
}

// refuse says what is wrong with the order of messages.
func (s *oldSession) refuse(method string) string {
	s.stub.mu.Lock()
	defer s.stub.mu.Unlock()

	s.stub.log = append(s.stub.log, method)

	switch {
	case method == methodInitialize:
		s.state = 1
	case s.state == 0:
		return method + " before initialize"
	case method == methodInitialized:
		s.state = 2
	case s.state == 1 && method != methodPing:
		return method + " before initialized"
	}

	return ""
}

func (s *oldSession) answer(m stubMessage) {
	switch m.Method {
	case methodInitialize:
		version := m.Params.ProtocolVersion
		if s.stub.version != "" {
			version = s.stub.version
		}

		s.result(m, `{"protocolVersion":"`+version+`","capabilities":{"tools":{}},"serverInfo":{"name":"old","version":"1"}}`)
	case methodPing, "logging/setLevel", "resources/subscribe":
		s.result(m, `{}`)
	case methodList:
		s.result(m, `{"tools":[{"name":"a","inputSchema":{"type":"object"}}]}`)
	default:
		if s.stub.call != nil {
			s.stub.call(s, m)
			return
		}

		s.result(m, `{"content":[{"type":"text","text":"ran `+m.Params.Name+`"}]}`)
	}
}

func (s *oldSession) result(m stubMessage, result string) {
	s.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result))
}

func (s *oldSession) send(message string) {
	select {
	case s.events <- message:
	case <-s.done:
	}
}

func (s *oldStub) stream(w http.ResponseWriter, r *http.Request) {
	sess := &oldSession{stub: s, events: make(chan string), done: r.Context().Done()}

	s.mu.Lock()
	if s.sessions == nil {
		s.sessions = map[string]*oldSession{}
	}

	sess.id = rand.Text() // as of servers in use, another in each process
	s.sessions[sess.id] = sess
	s.mu.Unlock()

	address := "message?sessionId=" + sess.id
	if s.address != nil {
		address = s.address(r, sess.id)
	}

	w.Header().Set("Content-Type", "text/event-stream")
	fmt.Fprintf(w, "event: endpoint\r\ndata: %s\r\n\r\n", address)

	rc := http.NewResponseController(w)

	for rc.Flush() == nil {
		select {
		case e := <-sess.events:
			fmt.Fprintf(w, "event: message\ndata: %s\n\n", e)
		case <-r.Context().Done():
			s.forget(sess.id)
			return
		}
	}
}

func (s *oldStub) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()

	s.sessions[id] = nil
}

// open is the number of open streams.
func (s *oldStub) open() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, sess := range s.sessions {
		if sess != nil {
			n++
		}
	}

	return n
}

// any returns an open session.
func (s *oldStub) any() *oldSession {
	s.mu.Lock()
	defer s.mu.Unlock()

	for _, sess := range s.sessions {
		if sess != nil {
			return sess
		}
	}

	return nil
}

// got returns the methods that came, but for pings.
func (s *oldStub) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()

	return slices.DeleteFunc(slices.Clone(s.log), func(m string) bool { return m == methodPing })
}

// oldRig is a rig for the old transport.
func oldRig(t *testing.T, opts ...rigOption) *rig {
	t.Helper()

	opts = slices.Insert(opts, 0, func(cfg *Config, _ *Deps, _ *rig) {
		cfg.Servers[0].Transport = TransportSSE
		cfg.Servers[0].Path = "/team/sse"
		cfg.Servers[0].Upstream.Path = "/team/sse"
	})

	return newRig(t, opts...)
}

// oldClient is a client of the old transport.
type oldClient struct {
	*listening

	r    *rig
	post string // where to
}

// connect opens a client's stream.
func (r *rig) connect(path string, header ...string) *oldClient {
	r.t.Helper()

	ctx, cancel := context.WithCancel(r.t.Context())

	req, err := http.NewRequestWithContext(ctx, http.MethodGet, r.front.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}

	req.Header.Set("Accept", "text/event-stream")

	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}

	resp, err := r.front.Client().Do(req)
	if err != nil {
		r.t.Fatal(err)
	}

	if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("stream: %d %v %s", resp.StatusCode, resp.Header, body)
	}

	events := newEventReader(resp.Body, maxEvent)

	first, err := events.Next()
	if err != nil || first.typ != "endpoint" {
		r.t.Fatalf("the first event is %q (%v)", first.raw, err)
	}

	to, err := req.URL.Parse(string(first.data))
	if err != nil {
		r.t.Fatal(err)
	}

	c := &oldClient{
		r: r, post: to.RequestURI(),
		listening: &listening{resp: resp, cancel: cancel, events: make(chan string, 100), ended: make(chan error, 1)},
	}

	if to.Host != req.URL.Host || to.Path != path {
		r.t.Errorf("the client posts to %s", to)
	}

	var wg sync.WaitGroup

	wg.Go(func() {
		for {
			ev, err := events.Next()
			if err != nil {
				c.ended <- err
				return
			}

			if ev.typ == "endpoint" {
				c.events <- "endpoint " + string(ev.data)
			} else if ev.hasData {
				c.events <- string(bytes.Clone(ev.data))
			}
		}
	})

	r.t.Cleanup(func() {
		cancel()
		wg.Wait()

		_ = resp.Body.Close()
	})

	return c
}

// send posts a message.
func (c *oldClient) send(body string, header ...string) got {
	c.r.t.Helper()

	g := c.r.do(c.r.t.Context(), http.MethodPost, c.post, "", body, header...)
	if g.err != nil {
		c.r.t.Error(g.err)
	}

	return g
}

// request posts a message that is to be accepted.
func (c *oldClient) request(body string, header ...string) {
	c.r.t.Helper()

	if g := c.send(body, header...); g.status != http.StatusAccepted {
		c.r.t.Errorf("%s: %d %s", body, g.status, g.body)
	}
}

const oldInit = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2024-11-05","capabilities":{"roots":{}},"clientInfo":{"name":"test","version":"1"}}}`

func (c *oldClient) initialize(t *testing.T, header ...string) {
	t.Helper()

	c.request(oldInit, header...)
	c.next(t, `"listChanged":true`)
	c.request(`{"jsonrpc":"2.0","method":"notifications/initialized"}`, header...)
}

// take waits for an event.
func (l *listening) take(t *testing.T) string {
	t.Helper()

	e, err := l.event()
	if err != nil {
		t.Fatal(err)
	}

	return e
}

// response waits for the response to a request.
func (l *listening) response(t *testing.T, id int) (result string, code int, data map[string]any) {
	t.Helper()

	var m struct {
		ID     json.RawMessage
		Result json.RawMessage
		Error  *struct {
			Code int
			Data map[string]any
		}
	}

	if e := l.take(t); json.Unmarshal([]byte(e), &m) != nil || string(m.ID) != strconv.Itoa(id) {
		t.Errorf("got %s, want a response to %d", e, id)
	}

	if m.Error != nil {
		return "", m.Error.Code, m.Error.Data
	}

	return string(m.Result), 0, nil
}

var errNotYet = errors.New("not yet")
