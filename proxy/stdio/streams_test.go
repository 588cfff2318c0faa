package stdio

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const listChanged = `{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`

func postEvents(t *testing.T, body string) []string {
	t.Helper()

	var all []string

	for event := range strings.SplitSeq(strings.TrimSuffix(body, "\n\n"), "\n\n") {
		data, ok := strings.CutPrefix(event, "event: message\ndata: ")
		if !ok {
			t.Fatalf("not an event: %q", event)
		}

		all = append(all, data)
	}

	return all
}

func TestMessagesOfTheProcess(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	notice := toolCall("1", "notice", "method", "notifications/tools/list_changed")
	done := `{"jsonrpc":"2.0","id":1,"result":{"text":""}}`

	t.Run("in the answer without a stream", func(t *testing.T) {
		_, body := f.post(f.open(), notice)
		if diff := cmp.Diff([]string{listChanged, done}, postEvents(t, body)); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("on the stream", func(t *testing.T) {
		s := f.open()
		stream := f.listen(s)

		if _, body := f.post(s, notice); body != done {
			t.Errorf("got %s", body)
		}

		stream.want(listChanged)
	})

	t.Run("later, for a client that takes no events", func(t *testing.T) {
		s := f.open()

		if _, body := f.post(s, notice, "Accept", "application/json"); body != done {
			t.Errorf("got %s", body)
		}

		_, body := f.post(s, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Accept", "application/json")
		if body != `{"jsonrpc":"2.0","id":1,"result":{}}` {
			t.Errorf("got %s", body)
		}

		f.listen(s).want(listChanged)
	})

	t.Run("only events", func(t *testing.T) {
		_, body := f.post(f.open(), toolCall("1", "notice", "method", "x"), "Accept", "text/event-stream")
		if diff := cmp.Diff([]string{`{"jsonrpc":"2.0","method":"x"}`, done}, postEvents(t, body)); diff != "" {
			t.Error(diff)
		}

		_, body = f.post(f.open(), `{"jsonrpc":"2.0","id":1,"method":"ping"}`, "Accept", "text/event-stream")
		if diff := cmp.Diff([]string{`{"jsonrpc":"2.0","id":1,"result":{}}`}, postEvents(t, body)); diff != "" {
			t.Error(diff)
		}
	})

	t.Run("progress", func(t *testing.T) {
		s := f.open()
		stream := f.listen(s)

		_, body := f.post(s, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"_meta":{"progressToken":"\u0074"},"name":"progress"}}`)
		want := []string{
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"\u0074","progress":0}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"\u0074","progress":1}}`,
			`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"\u0074","progress":2}}`,
			done,
		}

		if diff := cmp.Diff(want, postEvents(t, body)); diff != "" {
			t.Error(diff)
		}

		// A task goes on after its request.
		f.text(s, "raw", "line", `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t"}}`)
		stream.want(`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t"}}`)
	})

	t.Run("requests", func(t *testing.T) {
		s := f.open()
		stream := f.listen(s)
		text := make(chan string, 1)

		go func() { text <- f.text(s, "ask", "method", "roots/list") }()

		stream.want(`{"jsonrpc":"2.0","id":"q","method":"roots/list"}`)

		if status, _ := f.post(s, `{"jsonrpc":"2.0","id":"q","result":{"roots":[]}}`); status != http.StatusAccepted {
			t.Errorf("got %d", status)
		}

		if got := <-text; got != `{"roots":[]}` {
			t.Errorf("got %s", got)
		}
	})

	t.Run("batch", func(t *testing.T) {
		_, body := f.post(f.open(), "["+toolCall("1", "notice", "method", "x")+`,{"jsonrpc":"2.0","id":2,"method":"ping"}]`)

		got := map[string]bool{}
		for _, m := range postEvents(t, body) {
			got[m] = true
		}

		want := map[string]bool{`{"jsonrpc":"2.0","method":"x"}`: true, done: true, `{"jsonrpc":"2.0","id":2,"result":{}}`: true}
		if body[0] != '[' && !cmp.Equal(want, got) {
			t.Error(cmp.Diff(want, got))
		}
	})

	t.Run("a newer stream takes over", func(*testing.T) {
		s := f.open()
		old := f.listen(s)
		stream := f.listen(s)
		old.end(io.EOF)
		f.post(s, notice)
		stream.want(listChanged)
	})

	t.Run("garbage", func(t *testing.T) {
		s := f.open()
		if got := f.text(s, "raw", "line", "Server ready!\n\n[]\n{\"id\":1}\n{\"jsonrpc\":\"2.0\",\"id\":99,\"result\":{}}\n{\"jsonrpc\":\"2.0\",\"id\":null,\"error\":{}}"); got != "" {
			t.Errorf("got %s", got)
		}

		f.pid(s)

		if n := strings.Count(f.log.String(), "something else than JSON-RPC"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

func TestUndeliverable(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()

	for range maxBacklog {
		f.post(s, toolCall("1", "notice", "method", "x"), "Accept", "application/json")
	}

	text := make(chan string, 1)

	go func() {
		_, body := f.post(s, toolCall("1", "ask", "method", "roots/list"), "Accept", "application/json")
		text <- body
	}()

	eventually(t, "the request waits", func() bool {
		sess := f.session(s)
		sess.mu.Lock()
		defer sess.mu.Unlock()

		return sess.backlog[len(sess.backlog)-1].kind == kindRequest
	})

	for range maxBacklog {
		f.post(s, toolCall("2", "notice", "method", "x"), "Accept", "application/json")
	}

	if got := <-text; !strings.Contains(got, "The client has no stream open") {
		t.Errorf("got %s", got)
	}
}

func TestCancel(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()

	ctx, cancel := context.WithCancel(t.Context())
	left := make(chan error, 1)

	go func() {
		err := f.failing(ctx, s, toolCall(`"one"`, "mute"))
		left <- err
	}()

	status := make(chan int, 1)

	go func() {
		got, _ := f.post(s, toolCall(`"two"`, "mute"))
		status <- got
	}()

	eventually(t, "both run", func() bool {
		p := f.session(s).proc
		p.mu.Lock()
		defer p.mu.Unlock()

		return len(p.pending) == 2
	})

	cancel()

	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}

	// A client that left may still cancel.
	for _, id := range []string{`"one"`, `"tw\u006f"`, `"three"`} {
		f.post(s, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":`+id+`}}`)
	}

	if got := <-status; got != http.StatusAccepted {
		t.Errorf("got %d", got)
	}

	eventually(t, "the process was told", func() bool { return strings.Count(f.log.String(), "cancelled ") == 2 })

	if f.session(s).proc.busy() {
		t.Error("somebody waits")
	}
}
