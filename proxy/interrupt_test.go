package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// interruptible makes calls of the tool "slow" and listings run until the process
// dies. They begin with how; without it they answer nothing at all.
func interruptible(s *stub, began chan<- struct{}, dead <-chan struct{}, how func(http.ResponseWriter, stubMessage)) *stub {
	s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Params.Name != "slow" && m.Method != methodList {
			return false
		}

		if how != nil {
			how(w, m)
			_ = http.NewResponseController(w).Flush()
		}

		began <- struct{}{}
		<-dead
		drop()

		return true
	}

	return s
}

// TestInterruptedCall: a call that the backend had when it died is never run twice
// unless that is harmless, and always answered once.
func TestInterruptedCall(t *testing.T) {
	nothing := func(http.ResponseWriter, stubMessage) {}
	half := func(w http.ResponseWriter, m stubMessage) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"resu`, m.ID)
	}
	header := func(w http.ResponseWriter, _ stubMessage) { w.Header().Set("Content-Type", "text/event-stream") }
	event := func(w http.ResponseWriter, m stubMessage) {
		header(w, m)
		fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\",\"params\":{}}\n\n")
	}

	reads := []ToolHints{{Name: "slow", Digest: "1", ReadOnly: true}}
	other := []ToolHints{{Name: "slow", Digest: "2", ReadOnly: true}}
	repeats := []ToolHints{{Name: "slow", Digest: "1", Idempotent: true}}
	acts := []ToolHints{{Name: "slow", Digest: "1"}}
	never := func(c *Config, _ *Deps, _ *rig) { c.Servers[0].Replay = ReplayNever }
	slow := callBody(8, "slow")

	for _, c := range []struct {
		name          string
		body          string
		how           func(http.ResponseWriter, stubMessage)
		before, after []ToolHints
		opts          []rigOption
		again         bool
	}{
		{name: "nothing answered", body: slow, how: nil, before: acts, after: acts},
		{name: "header only", body: slow, how: nothing, before: acts, after: acts},
		{name: "half a JSON body", body: slow, how: half, before: acts, after: acts},
		{name: "stream begun", body: slow, how: header, before: acts, after: acts},
		{name: "one event", body: slow, how: event, before: acts, after: acts},
		{name: "read-only", body: slow, how: nil, before: reads, after: reads, again: true},
		{name: "read-only, half a JSON body", body: slow, how: half, before: reads, after: reads, again: true},
		{name: "read-only, stream begun", body: slow, how: header, before: reads, after: reads, again: true},
		{name: "read-only, one event", body: slow, how: event, before: reads, after: reads},
		{name: "idempotent", body: slow, how: nil, before: repeats, after: repeats, again: true},
		{name: "read-only, changed", body: slow, how: nil, before: reads, after: other},
		{name: "read-only, gone", body: slow, how: nil, before: reads, after: nil},
		{name: "read-only, never", body: slow, how: nil, before: reads, after: reads, opts: []rigOption{never}},
		{
			name: "read-only, a task", how: nil, before: reads, after: reads,
			body: `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"slow","task":{"ttl":1}}}`,
		},
		{name: "list", body: listBody(8), how: nil, again: true},
		{name: "list, never", body: listBody(8), how: nil, again: true, opts: []rigOption{never}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, c.opts...)
			began := make(chan struct{}, 1)
			dead := make(chan struct{})
			first := interruptible(&stub{prefix: "one-"}, began, dead, c.how)
			r.backend.start(process{handler: first, tools: c.before})

			id := r.initialize()
			r.settled()

			var wg sync.WaitGroup

			wg.Go(func() {
				g := r.post(id, c.body)

				got, result, code, data := g.rpc(t)
				if got != "8" || g.status != 200 {
					t.Errorf("%d %s", g.status, g.body)
				}

				if n := strings.Count(g.body, `"id":8`); n != 1 {
					t.Errorf("%d answers: %s", n, g.body)
				}

				if c.again {
					if code != 0 || !strings.Contains(string(result), "ran") {
						t.Errorf("not sent again: %s", g.body)
					}
				} else if code != CodeInterrupted || data["mayHaveExecuted"] != true || data["retryable"] != false {
					t.Errorf("no error that it may have run: %s", g.body)
				}
			})

			<-began
			r.backend.kill()
			close(dead)
			r.backend.start(process{handler: &stub{prefix: "two-"}, tools: c.after})
			wg.Wait()
			r.settled()

			want := 0
			if c.again {
				want = 1
			}

			// Under the lost session it may have come, to be refused.
			if n := len(r.backend.calls(func(b call) bool { return b.session == "two-0" && b.body == c.body })); n != want {
				t.Errorf("sent %d times to the new process", n)
			}
		})
	}
}

// TestEndOfStream: a clean end without a response means that the backend wants to
// be polled, if it said how; otherwise it is a failure.
func TestEndOfStream(t *testing.T) {
	for name, c := range map[string]struct {
		events string
		want   string
	}{
		"polling":       {"id: 7\ndata: \n\n", "id: 7\ndata: \n\n"},
		"response":      {"data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n", "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{}}\n\n"},
		"no event id":   {": hello\n\n", "CodeInterrupted"},
		"half an event": {"id: 7\n\ndata: {\"json", "id: 7\n\nCodeInterrupted"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			s := &stub{}
			s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
				if m.Method == methodCall {
					w.Header().Set("Content-Type", "text/event-stream")
					fmt.Fprint(w, c.events)
				}

				return m.Method == methodCall
			}
			r.backend.start(process{handler: s})

			g := r.post(r.initialize(), callBody(1, "x"))

			if before, ok := strings.CutSuffix(c.want, "CodeInterrupted"); ok {
				if _, _, code, _ := g.rpc(t); !strings.HasPrefix(g.body, before) || code != CodeInterrupted {
					t.Errorf("got %q", g.body)
				}
			} else if diff := cmp.Diff(c.want, g.body); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestEventStreamIsUntouched: events pass byte for byte, also large ones, and each
// as soon as it is there.
func TestEventStreamIsUntouched(t *testing.T) {
	huge := `{"jsonrpc":"2.0","id":9007199254740993,"result":{"x":"` + strings.Repeat("y", 15<<20) + `","n":1.0,"u":"\u00e9é"}}`
	stream := ": hi\r\n\r\nevent: message\r\nid: 1\r\ndata: {\"jsonrpc\":\"2.0\",\r\ndata: \"method\":\"notifications/progress\"}\r\nretry: 5\r\n\r\ndata:" + huge + "\n\n: bye\n\n"

	r := newRig(t)
	s := &stub{}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Method == methodCall {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			fmt.Fprint(w, stream)
		}

		return m.Method == methodCall
	}
	r.backend.start(process{handler: s})

	g := r.post(r.initialize(), callBody(1, "x"))
	if g.body != stream {
		t.Errorf("the stream changed: %d bytes, want %d", len(g.body), len(stream))
	}
}

// TestJSONIsUntouched: bodies pass byte for byte in both directions.
func TestJSONIsUntouched(t *testing.T) {
	request := "{ \"jsonrpc\":\"2.0\" ,\"id\":9007199254740993,\"method\":\"x/unknown\",\"params\":{\"a\":1.0,\"a\":2e400},\"extra\":null}\n"
	response := "{\"id\":9007199254740993, \"jsonrpc\":\"2.0\",\"result\":{\"z\":1.50,\"a\":\"\\u00e9\"},\"more\":[ ]}\n"

	r := newRig(t)
	s := &stub{}
	s.handle = func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
		if m.Method == "x/unknown" {
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("X-Custom", "kept")
			fmt.Fprint(w, response)
		}

		return m.Method == "x/unknown"
	}
	r.backend.start(process{handler: s})

	g := r.post(r.initialize(), request)
	if g.body != response || g.header.Get("X-Custom") != "kept" {
		t.Errorf("got %q", g.body)
	}

	for _, c := range r.backend.calls(func(c call) bool { return c.method == "x/unknown" }) {
		if c.body != request {
			t.Errorf("sent %q", c.body)
		}
	}
}

// TestAnswerWithoutAWord: a server that is told to stop may end the requests that
// it has with a success that says nothing. For the client that is no answer.
func TestAnswerWithoutAWord(t *testing.T) {
	for name, c := range map[string]struct {
		tool  ToolHints
		body  string
		again bool
	}{
		"acts":    {ToolHints{Name: "slow"}, "", false},
		"reads":   {ToolHints{Name: "slow", ReadOnly: true}, "", true},
		"a blank": {ToolHints{Name: "slow"}, "\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			var tries atomic.Int64

			s := &stub{handle: func(w http.ResponseWriter, _ *http.Request, m stubMessage) bool {
				if m.Params.Name != "slow" && m.Method != methodProgress || tries.Add(1) > 1 {
					return false
				}

				_, _ = io.WriteString(w, c.body)

				return true
			}}
			r := newRig(t)
			r.backend.start(process{handler: s, tools: []ToolHints{c.tool}})

			id := r.initialize()
			r.settled()

			g := r.post(id, callBody(8, "slow"))
			got, result, code, data := g.rpc(t)

			if c.again != strings.Contains(string(result), "ran") || g.status != 200 || got != "8" {
				t.Errorf("%d %s", g.status, g.body)
			}

			if !c.again && (code != CodeInterrupted || data["mayHaveExecuted"] != true) {
				t.Errorf("no error that it may have run: %s", g.body)
			}

			// What wants no answer has one.
			tries.Store(0)

			if g := r.post(id, `{"jsonrpc":"2.0","method":"`+methodProgress+`"}`); g.status != 200 || g.body != c.body {
				t.Errorf("%d %s", g.status, g.body)
			}
		})
	}
}

// TestInitializedInterrupted: a backend that may not have got notifications/initialized gets it again, since it may refuse
// everything before.
func TestInitializedInterrupted(t *testing.T) {
	dropping := func(next http.Handler) process {
		var lost atomic.Bool

		return process{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			if bytes.Contains(body, []byte(methodInitialized)) && lost.CompareAndSwap(false, true) {
				drop()
			}

			r.Body = io.NopCloser(bytes.NewReader(body))
			next.ServeHTTP(w, r)
		})}
	}

	t.Run("Streamable HTTP", func(t *testing.T) {
		r := newRig(t)
		r.backend.start(dropping(&stub{}))
		r.initialize()

		if n := r.backend.count(1, methodInitialized); n != 2 {
			t.Errorf("it was told %d times", n)
		}
	})

	t.Run("HTTP+SSE", func(t *testing.T) {
		r := oldRig(t)
		s := &oldStub{}
		r.backend.start(dropping(s))
		c := r.connect("/team/sse")
		c.initialize(t)
		c.request(callBody(1, "a"))
		c.response(t, 1)

		if want := []string{"initialize", methodInitialized, "tools/call"}; !cmp.Equal(s.got(), want) {
			t.Error(s.got())
		}
	})
}
