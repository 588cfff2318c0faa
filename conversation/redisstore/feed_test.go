package redisstore

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// heard collects what a store's feed says.
type heard struct {
	mu  sync.Mutex
	all []conversation.Change
}

func watch(t *testing.T, s *Store) *heard {
	t.Helper()
	h := new(heard)
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := s.Watch(t.Context(), func(c conversation.Change) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.all = append(h.all, c)
		}); err != nil {
			t.Errorf("Watch: %v", err)
		}
	})
	t.Cleanup(wg.Wait)
	return h
}

func (h *heard) count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.all)
}

// wait waits until something that was heard is what is wanted, and returns it.
func (h *heard) wait(t *testing.T, wanted func(conversation.Change) bool) (found conversation.Change) {
	t.Helper()
	eventually(t, "a change", func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, c := range h.all {
			if wanted(c) {
				found = c
				return true
			}
		}
		return false
	})
	return found
}

func TestFeed(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	writer, reader := server.open(t, "p"), server.open(t, "p")
	h, own := watch(t, reader), watch(t, writer)
	missed := func(c conversation.Change) bool { return c.Missed }
	h.wait(t, missed)
	own.wait(t, missed)

	now := time.Now().UTC()
	c, err := writer.Put(t.Context(), conversation.Conversation{
		ID: "größe 1", AgentServer: "x", LastActive: now, Servers: map[string]conversation.Applied{"tools": {Generation: 3}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := h.wait(t, func(c conversation.Change) bool { return c.Conversation != nil })
	if diff := cmp.Diff(c, *got.Conversation); diff != "" {
		t.Errorf("conversation (-want +got):\n%s", diff)
	}
	touch := conversation.Touch{ID: c.ID, LastActive: now.Add(time.Minute)}
	if err := writer.Touch(t.Context(), []conversation.Touch{touch}); err != nil {
		t.Fatal(err)
	}
	got = h.wait(t, func(c conversation.Change) bool { return c.Touches != nil })
	if diff := cmp.Diff([]conversation.Touch{touch}, got.Touches); diff != "" {
		t.Errorf("touches (-want +got):\n%s", diff)
	}
	g := conversation.Generation{Server: "tools", Number: 1, Hash: "h", At: now, Tools: map[string]string{"a": "b"}}
	if err := writer.PutGeneration(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	got = h.wait(t, func(c conversation.Change) bool { return c.Generation != nil })
	if diff := cmp.Diff(g, *got.Generation); diff != "" {
		t.Errorf("generation (-want +got):\n%s", diff)
	}
	if err := writer.Delete(t.Context(), c.ID, c.Revision); err != nil {
		t.Fatal(err)
	}
	h.wait(t, func(got conversation.Change) bool { return got.Removed == c.ID })
	if err := writer.Tell(t.Context(), "topic", []byte("a\nb")); err != nil {
		t.Fatal(err)
	}
	h.wait(t, func(c conversation.Change) bool {
		return c.Message != nil && c.Message.Topic == "topic" && string(c.Message.Body) == "a\nb" && c.Message.From == writer.origin
	})
	if n := own.count(); n != 1 {
		t.Errorf("the writer heard %d things of itself", n-1)
	}
}

func FuzzParseMessage(f *testing.F) {
	s := &Store{origin: "me"}
	f.Add([]byte("m other\ntopic\nbody"))
	f.Add([]byte(`t other` + "\n" + `[{"id":"a","a":"0000000000000000001","r":"0000000000000000000"}]`))
	f.Add([]byte("r other\nid"))
	f.Fuzz(func(t *testing.T, m []byte) {
		c, ok := s.parseMessage(m)
		if ok && c.Conversation == nil && c.Removed == "" && c.Generation == nil && len(c.Touches) == 0 && c.Message == nil {
			t.Errorf("%q says nothing", m)
		}
	})
}
