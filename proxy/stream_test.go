package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	mcpserver "github.com/mark3labs/mcp-go/server"
)

// TestStreamOutlivesTheBackend: the client's stream stays, and the new process's
// messages come on it.
func TestStreamOutlivesTheBackend(t *testing.T) {
	for _, how := range []string{"FIN", "RST", "KILL"} {
		t.Run(how, func(t *testing.T) {
			one, two := &streams{}, &streams{}
			r := newRig(t)
			r.backend.start(process{handler: &stub{prefix: "one-", get: one.get}})

			id := r.initialize()
			l := r.listen(id)
			one.send(t, "one-0", hello)
			l.next(t, "hello")

			if how != "KILL" {
				one.send(t, "one-0", how)
				eventually(t, "the stream is opened again", func() error {
					one.mu.Lock()
					defer one.mu.Unlock()

					if one.n != 2 {
						return errors.New("it isn't")
					}

					return nil
				})
				one.send(t, "one-0", hello)
				l.next(t, "hello")
			}

			r.swap(process{handler: &stub{prefix: "two-", get: two.get}})
			two.send(t, "two-0", hello)
			l.next(t, "hello")
			l.none(t)

			if n := r.backend.count(2, methodInitialize); n != 1 {
				t.Errorf("%d initialize", n)
			}

			if one.most+two.most != 0 {
				t.Errorf("%d times a second stream", one.most+two.most)
			}
		})
	}
}

// TestStreamOfAFrozenBackend: the connection to the process before never breaks.
func TestStreamOfAFrozenBackend(t *testing.T) {
	one, two := &streams{}, &streams{}
	r := newRig(t)
	r.backend.start(process{handler: &stub{prefix: "one-", get: one.get}})

	id := r.initialize()
	l := r.listen(id)
	one.send(t, "one-0", hello)
	l.next(t, "hello")

	r.backend.mu.Lock()
	frozen := r.backend.srv
	r.backend.mu.Unlock()

	defer func() { _ = frozen.Close() }()

	// Only the listener goes; its connections stay.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	_ = frozen.Shutdown(ctx)

	r.backend.start(process{handler: &stub{prefix: "two-", get: two.get}})
	r.settled()
	two.send(t, "two-0", hello)
	l.next(t, "hello")
}

// TestOldEventIDs: an id of the process before is never sent to the new one.
func TestOldEventIDs(t *testing.T) {
	one, two := &streams{}, &streams{}
	r := newRig(t)
	r.backend.start(process{handler: &stub{prefix: "one-", get: one.get}})

	id := r.initialize()
	r.settled()

	l := r.listen(id)
	one.send(t, "one-0", "id: ev-1\n"+hello)
	l.next(t, "hello")
	l.cancel()
	eventually(t, "the backend's stream ends with the client's", func() error {
		if one.isOpen("one-0") {
			return errors.New("it is open")
		}

		return nil
	})

	// The same process gets it.
	l = r.listen(id, "Last-Event-ID", "ev-1")
	one.send(t, "one-0", "id: ev-2\n"+hello)
	l.next(t, "hello")
	l.cancel()

	if fmt.Sprint(one.from) != "[ev-1]" {
		t.Errorf("resumed from %v", one.from)
	}

	r.swap(process{handler: &stub{prefix: "two-", get: two.get}})
	r.settled()

	for _, from := range []string{"ev-2", "never-seen"} {
		l = r.listen(id, "Last-Event-ID", from)
		two.send(t, "two-0", hello)
		l.next(t, "hello")
		l.cancel()
		eventually(t, "the stream ends", func() error {
			if two.isOpen("two-0") {
				return errors.New("it is open")
			}

			return nil
		})
	}

	if len(two.from) != 0 {
		t.Errorf("the new process was asked for %v", two.from)
	}
}

// TestPolling: an answer that is to be polled for is found on the stream that the
// client opens, or said to be lost.
func TestPolling(t *testing.T) {
	for _, swap := range []bool{false, true} {
		t.Run(fmt.Sprint("swap ", swap), func(t *testing.T) {
			r := newRig(t)
			s := &stub{prefix: "one-"}
			s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
				if m.Method == methodCall {
					w.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprint(w, "id: p-1\ndata: \n\n")
				}

				return m.Method == methodCall
			}
			s.get = func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Last-Event-ID") != "p-1" {
					http.Error(w, "no", http.StatusMethodNotAllowed)
					return
				}

				w.Header().Set("Content-Type", "text/event-stream")
				fmt.Fprint(w, "id: p-2\ndata: {\"jsonrpc\":\"2.0\",\"id\":4,\"result\":{}}\n\n")
			}
			r.backend.start(process{handler: s})

			id := r.initialize()
			r.settled()
			r.post(id, callBody(4, "x"))

			if swap {
				r.swap(process{handler: &stub{prefix: "two-"}})
				r.settled()
			}

			l := r.listen(id, "Last-Event-ID", "p-1")
			if swap {
				l.next(t, strconv.Itoa(CodeInterrupted))
			} else {
				l.next(t, `"id":4,"result":{}`)
			}
		})
	}
}

// TestTwoStreams: each message goes to one stream of the session, and the other
// takes over when the first is gone.
func TestTwoStreams(t *testing.T) {
	one := &streams{}
	r := newRig(t)
	r.backend.start(process{handler: &stub{prefix: "one-", get: one.get}})

	id := r.initialize()
	a, b := r.listen(id), r.listen(id)

	for i := range 5 {
		one.send(t, "one-0", strings.Replace(hello, "hello", fmt.Sprint("hello ", i), 1))
	}

	for i := range 5 {
		want := fmt.Sprint("hello ", i)

		select {
		case e := <-a.events:
			if !strings.Contains(e, want) {
				t.Errorf("got %s, want %s", e, want)
			}
		case e := <-b.events:
			if !strings.Contains(e, want) {
				t.Errorf("got %s, want %s", e, want)
			}
		case <-time.After(5 * time.Second):
			t.Fatal("no event")
		}
	}

	a.none(t)
	b.none(t)
	a.cancel()
	eventually(t, "one stream is left", func() error {
		if n := r.proxy.Stats()[0].Streams; n != 1 {
			return fmt.Errorf("%d are", n)
		}

		return nil
	})
	one.send(t, "one-0", hello)
	b.next(t, "hello")
}

// TestSidecarServesStream: where the backend has none, the sidecar's own does.
func TestSidecarServesStream(t *testing.T) {
	html := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<h1>hi</h1>")
	}

	for name, s := range map[string]*stub{
		"405":         {},
		"sessionless": {sessionless: true},
		"html":        {get: html},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.KeepAlive = 10 * time.Millisecond })
			r.backend.start(process{handler: s, tools: []ToolHints{{Name: "a"}}})

			id := r.initialize()
			r.settled()

			l := r.listen(id)
			r.swap(process{handler: s, tools: []ToolHints{{Name: "b"}}})
			r.settled()
			l.next(t, methodListChanged)

			for epoch := range uint64(2) {
				if n := len(r.backend.calls(func(c call) bool { return c.http == http.MethodGet && c.epoch == epoch+1 })); n > 1 {
					t.Errorf("the backend's GET was asked %d times", n)
				}
			}
		})
	}
}

// TestAnnouncement: a new generation is announced once to each session that
// listens and has been initialised.
func TestAnnouncement(t *testing.T) {
	r := newRig(t)
	r.backend.start(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))

	ids := []string{r.initialize(), r.initialize()}
	half := r.post("", initBody).header.Get("Mcp-Session-Id")

	r.settled()

	var listeners []*listening
	for _, id := range append(ids, half) {
		listeners = append(listeners, r.listen(id))
	}

	r.swap(mcpServer([]string{"a", "b"}, mcpserver.WithStateful(true)))
	r.settled()
	listeners[0].next(t, methodListChanged)
	listeners[1].next(t, methodListChanged)

	for _, id := range ids {
		if g := r.post(id, listBody(1)); !strings.Contains(g.body, `"b"`) {
			t.Errorf("list: %s", g.body)
		}
	}

	r.swap(mcpServer([]string{"a", "b"}, mcpserver.WithStateful(true))) // the same again
	r.settled()
	r.swap(mcpServer([]string{"c"}, mcpserver.WithStateful(true)))
	r.settled()
	listeners[0].next(t, methodListChanged)
	listeners[1].next(t, methodListChanged)

	for _, l := range listeners {
		l.none(t)
	}
}

// TestInitializedLate: a client is told of changes that says only after a swap that it
// is initialised, whether the backend gets that from it or from the sidecar.
func TestInitializedLate(t *testing.T) {
	r := newRig(t)
	r.backend.start(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))

	id := r.post("", initBody).header.Get("Mcp-Session-Id")

	r.settled()
	r.swap(mcpServer([]string{"a"}, mcpserver.WithStateful(true)))
	r.settled()

	if g := r.post(id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); g.status != http.StatusAccepted {
		t.Fatalf("initialized: %d %s", g.status, g.body)
	}

	l := r.listen(id)

	r.swap(mcpServer([]string{"a", "b"}, mcpserver.WithStateful(true)))
	r.settled()
	l.next(t, methodListChanged)
}

// TestBackendNotices: many notices become few, the last of them after the last
// change; and a backend that gives notice of every listing is not listed for ever.
func TestBackendNotices(t *testing.T) {
	t.Run("storm", func(t *testing.T) {
		s := mcpserver.NewMCPServer("backend", "1", mcpserver.WithToolCapabilities(true))
		r := newRig(t)
		r.backend.start(process{handler: mcpserver.NewStreamableHTTPServer(s)})

		id := r.initialize()
		r.settled()

		l := r.listen(id)
		eventually(t, "the backend's stream is open", func() error {
			if n := len(r.backend.calls(func(c call) bool { return c.http == http.MethodGet })); n == 0 {
				return errors.New("it isn't")
			}

			return nil
		})

		for i := range 200 {
			s.AddTool(mcp.NewTool(fmt.Sprint("tool-", i)), nil)
		}

		l.next(t, methodListChanged)

		notices := 1
		for more := true; more; {
			select {
			case <-l.events:
				notices++
			case <-time.After(400 * time.Millisecond): // four times the quiet time
				more = false
			}
		}

		if g := r.post(id, listBody(1)); !strings.Contains(g.body, "tool-199") || notices > 3 {
			t.Errorf("%d notices; %d", notices, g.status)
		}
	})

	t.Run("loop", func(t *testing.T) {
		st := &streams{}
		s := &stub{get: st.get}
		s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
			if m.Method == methodList {
				st.send(t, "0", "data: "+listChanged+"\n\n")
				s.result(w, m, `{"tools":[]}`)
			}

			return m.Method == methodList
		}

		r := newRig(t)
		r.backend.start(process{handler: s})

		id := r.initialize()
		r.settled()

		l := r.listen(id)
		lists := 0

		for more := true; more; {
			r.post(id, listBody(lists))
			lists++

			select {
			case <-l.events:
			case <-time.After(400 * time.Millisecond):
				more = false
			}

			if lists > 3 {
				t.Fatal("it goes on and on")
			}
		}
	})
}

// TestServerRequests: an answer to a request of the process before is accepted and
// dropped; one to the present process is passed on.
func TestServerRequests(t *testing.T) {
	const ask = "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"roots/list\"}\n\n"

	answer := `{"jsonrpc":"2.0","id":1,"result":{"roots":[]}}`
	one, two := &streams{}, &streams{}

	r := newRig(t)
	r.backend.start(process{handler: &stub{prefix: "one-", get: one.get}})

	id := r.initialize()
	r.settled()

	l := r.listen(id)
	one.send(t, "one-0", ask)
	l.next(t, "roots/list")
	r.swap(process{handler: &stub{prefix: "two-", get: two.get}})
	r.settled()

	if g := r.post(id, answer); g.status != 202 {
		t.Errorf("late: %d %s", g.status, g.body)
	}

	answers := func() int {
		return len(r.backend.calls(func(c call) bool { return c.epoch == 2 && c.body == answer }))
	}

	if n := answers(); n != 0 {
		t.Errorf("the late answer reached the new process")
	}

	two.send(t, "two-0", ask)
	l.next(t, "roots/list")

	if g := r.post(id, answer); g.status != 202 || answers() != 1 {
		t.Errorf("in time: %d %s, %d sent", g.status, g.body, answers())
	}

	// One that waits for the backend belongs to the process before, too.
	two.send(t, "two-0", ask)
	l.next(t, "roots/list")
	r.backend.kill()

	held := make(chan got, 1)

	go func() { held <- r.do(t.Context(), http.MethodPost, "/mcp", id, answer) }()

	eventually(t, "the answer is held", func() error {
		if n := r.proxy.Stats()[0].Held; n != 1 {
			return fmt.Errorf("%d are", n)
		}

		return nil
	})
	r.backend.start(process{handler: &stub{sessionless: true}})

	if g := <-held; g.status != 202 {
		t.Errorf("held: %d %s", g.status, g.body)
	}

	if n := len(r.backend.calls(func(c call) bool { return c.epoch == 3 && c.body == answer })); n != 0 {
		t.Error("the held answer reached the new process")
	}
}
