package proxy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// bus brings what one proxy tells to all others.
type bus struct {
	mu   sync.Mutex
	rigs []*rig
	away bool
}

// from is a proxy's end of a bus.
type from struct {
	bus *bus
	rig *rig
}

func (f from) Tell(ctx context.Context, topic string, body []byte) error {
	f.bus.mu.Lock()
	defer f.bus.mu.Unlock()

	if f.bus.away {
		return errors.New("the bus is away")
	}

	for _, r := range f.bus.rigs {
		if r != f.rig {
			r.proxy.Hear(ctx, conversation.Message{Topic: topic, Body: body})
		}
	}

	return nil
}

// newReplicas returns two proxies that share keys and blobs, each before a stub of
// its own.
func newReplicas(t *testing.T, stubs ...*stub) (a, b *rig, shared *bus) {
	t.Helper()

	shared = &bus{}
	blobs := newMemoryBlobs()

	var rigs []*rig

	for i, s := range stubs {
		s.prefix = fmt.Sprintf("%c-", 'a'+i)
		r := newRig(t, func(_ *Config, d *Deps, r *rig) { d.Blobs, d.Peers = blobs, from{shared, r} })
		r.backend.start(process{handler: s})
		r.settled()
		rigs = append(rigs, r)
	}

	shared.mu.Lock()
	defer shared.mu.Unlock()

	shared.rigs = rigs

	return rigs[0], rigs[1], shared
}

// waitFor reads a stream up to a line that contains text.
func waitFor(t *testing.T, events *bufio.Scanner, text string) string {
	t.Helper()

	for events.Scan() {
		if strings.Contains(events.Text(), text) {
			return events.Text()
		}
	}

	t.Fatalf("the stream ended without %q: %v", text, events.Err())

	return ""
}

// asking is a server that asks its client something during a call, and ends the
// call when it has the answer.
func asking(answers chan string) *stub {
	s := &stub{}
	answered := make(chan struct{}, 1)
	s.handle = func(w http.ResponseWriter, r *http.Request, m stubMessage) bool {
		switch {
		case m.Method == methodCall:
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, "data: {\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"elicitation/create\",\"params\":{}}\n\n")
			_ = http.NewResponseController(w).Flush()

			select {
			case <-answered:
			case <-r.Context().Done():
				return true
			}

			fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":%s,\"result\":{\"content\":[]}}\n\n", m.ID)
		case m.Method == "" && m.ID != nil:
			answers <- r.Header.Get("Mcp-Session-Id") + " " + r.Header.Get("Authorization")
			answered <- struct{}{}

			w.WriteHeader(http.StatusAccepted)
		default:
			return false
		}

		return true
	}

	return s
}

const answerBody = `{"jsonrpc":"2.0","id":1,"result":{"action":"accept"}}`

// TestAnswerComesToAnotherReplica: whoever passed the request on gets the answer.
func TestAnswerComesToAnotherReplica(t *testing.T) {
	atA, atB := make(chan string, 8), make(chan string, 8)
	a, b, _ := newReplicas(t, asking(atA), asking(atB))
	id := a.initialize("Authorization", "Bearer one")

	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, a.front.URL+"/mcp", strings.NewReader(callBody(7, "x")))
	if err != nil {
		t.Fatal(err)
	}

	req.Header = http.Header{
		"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
		"Mcp-Session-Id": {id}, "Authorization": {"Bearer one"},
	}

	resp, err := a.front.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()

	events := bufio.NewScanner(resp.Body)
	waitFor(t, events, "elicitation/create")

	if g := b.post(id, answerBody, "Authorization", "Bearer one"); g.status != http.StatusAccepted {
		t.Errorf("the answer: %d %s", g.status, g.body)
	}

	if end := waitFor(t, events, `"id":7`); !strings.Contains(end, "content") {
		t.Errorf("the call ended with %q", end)
	}

	if got := <-atA; got != "a-0 Bearer one" {
		t.Errorf("the answer came with %q", got)
	}

	if len(atB) > 0 {
		t.Errorf("the other backend got it: %q", <-atB)
	}
}

// TestAnswerThatNobodyWaitsFor goes to the backend, as it does with one replica.
func TestAnswerThatNobodyWaitsFor(t *testing.T) {
	for _, away := range []bool{false, true} {
		atA, atB := make(chan string, 8), make(chan string, 8)
		a, b, bus := newReplicas(t, asking(atA), asking(atB))
		id := a.initialize()
		b.post(id, listBody(1))
		bus.mu.Lock()
		bus.away = away
		bus.mu.Unlock()

		if g := b.post(id, answerBody); g.status != http.StatusAccepted {
			t.Errorf("the answer: %d %s", g.status, g.body)
		}

		if got := <-atB; !strings.HasPrefix(got, "b-") || len(atA) > 0 {
			t.Errorf("the answer came with %q; the other backend got %d", got, len(atA))
		}
	}
}

// TestSessionOnBothReplicas: what the client says of its session counts everywhere.
func TestSessionOnBothReplicas(t *testing.T) {
	a, b, _ := newReplicas(t, &stub{}, &stub{})

	id := a.post("", initBody).header.Get("Mcp-Session-Id")
	if g := b.post(id, `{"jsonrpc":"2.0","method":"notifications/initialized"}`); g.status != http.StatusAccepted {
		t.Fatalf("initialized: %d %s", g.status, g.body)
	}

	if n := a.backend.count(1, methodInitialized); n != 1 {
		t.Errorf("the backend that answered initialize was told %d times that its client is initialised", n)
	}

	for _, r := range []*rig{a, b, a, b} {
		if g := r.post(id, callBody(1, "x")); g.status != 200 || !strings.Contains(g.body, "ran x") {
			t.Errorf("%d %s", g.status, g.body)
		}
	}

	for _, r := range []*rig{a, b} {
		if n := r.backend.count(1, methodInitialize); n != 1 {
			t.Errorf("a backend saw %d initialize", n)
		}
	}

	level := `{"jsonrpc":"2.0","id":5,"method":"logging/setLevel","params":{"level":"error"}}`
	if g := b.post(id, level); g.status != 200 {
		t.Errorf("%d %s", g.status, g.body)
	}

	eventually(t, "the other backend has the level", func() error {
		for _, c := range a.backend.calls(func(c call) bool { return c.method == "logging/setLevel" && c.session == "a-0" }) {
			var m struct{ Params struct{ Level string } }
			if json.Unmarshal([]byte(c.body), &m) == nil && m.Params.Level == "error" {
				return nil
			}
		}

		return errors.New("it doesn't")
	})

	b.post(id, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
	eventually(t, "the cancellation came to the other backend", func() error {
		if n := a.backend.count(1, methodCancelled); n != 1 {
			return fmt.Errorf("it saw %d", n)
		}

		return nil
	})

	l := a.listen(id)

	if g := b.do(t.Context(), http.MethodDelete, "/mcp", id, ""); g.status != 200 {
		t.Errorf("%d %s", g.status, g.body)
	}

	l.end(t)

	eventually(t, "the session has ended everywhere", func() error {
		if g := a.post(id, callBody(2, "x")); g.status != 404 {
			return fmt.Errorf("%d %s", g.status, g.body)
		}

		if n := len(a.backend.calls(func(c call) bool { return c.http == http.MethodDelete })); n != 1 {
			return fmt.Errorf("%d were ended on the other backend", n)
		}

		return nil
	})
}

// TestForeignMessages: what isn't sealed with the keys does nothing.
func TestForeignMessages(t *testing.T) {
	a, _, _ := newReplicas(t, &stub{}, &stub{})
	id := a.initialize()
	claims, err := a.keys.openSession(id)
	if err != nil {
		t.Fatal(err)
	}

	forged, err := json.Marshal(peerMessage{Kind: peerCancelled, Server: "default", Key: claims.key(), Body: []byte(answerBody)})
	if err != nil {
		t.Fatal(err)
	}

	before := len(a.backend.calls(func(call) bool { return true }))

	for _, body := range [][]byte{nil, []byte("x"), forged} {
		a.proxy.Hear(t.Context(), conversation.Message{Topic: TopicSessions, Body: body})
	}

	a.post(id, callBody(1, "x"))

	if n := len(a.backend.calls(func(call) bool { return true })); n != before+1 {
		t.Errorf("the backend saw %d requests, want 1", n-before)
	}
}
