package redisstore

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// TestAway: while the server is away everything fails at once, and blobs wait.
func TestAway(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	var mu sync.Mutex
	var ups []bool
	s := server.open(t, "p", func(o *Options) {
		o.Timeout = 5 * time.Second
		o.OnUp = func(up bool) { mu.Lock(); defer mu.Unlock(); ups = append(ups, up) }
	})
	h := watch(t, s)
	h.wait(t, func(c conversation.Change) bool { return c.Missed })
	c, err := s.Put(t.Context(), conversation.Conversation{ID: "a"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.PutBlob(t.Context(), "sessions", "k", []byte("old"), 0); err != nil {
		t.Fatal(err)
	}
	server.p.Kill()
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, conversation.ErrUnavailable) {
		t.Errorf("Get: %v", err)
	}
	for key, value := range map[string]string{"k": "new", "more": "m"} {
		if err := s.PutBlob(t.Context(), "sessions", key, []byte(value), time.Hour); err != nil {
			t.Errorf("PutBlob: %v", err)
		}
	}
	if v, err := s.Blob(t.Context(), "sessions", "k"); err != nil || string(v) != "new" {
		t.Errorf("Blob = %q, %v", v, err)
	}
	if err := s.DeleteBlob(t.Context(), "sessions", "more"); err != nil {
		t.Errorf("DeleteBlob: %v", err)
	}
	if _, err := s.Blob(t.Context(), "sessions", "more"); !errors.Is(err, conversation.ErrNotFound) {
		t.Errorf("Blob of what is to be deleted: %v", err)
	}

	server.start()
	eventually(t, "the store to be back", func() bool { _, err := s.Get(t.Context(), "a"); return err == nil })
	if _, err := s.Put(t.Context(), c); err != nil {
		t.Errorf("Put: %v", err)
	}
	eventually(t, "the blob to be written", func() bool { return server.raw().Get(t.Context(), "{p}:blob:sessions:k").Val() == "new" })
	eventually(t, "the feed to say that it missed something", func() bool { return h.count() >= 2 })
	mu.Lock()
	defer mu.Unlock()
	if len(ups) != 2 || ups[0] || !ups[1] {
		t.Errorf("it said %v", ups)
	}
}

// TestHangs: a server that doesn't answer any more is away like one that is gone.
func TestHangs(t *testing.T) {
	t.Parallel()
	server := startServer(t)
	s := server.open(t, "p", func(o *Options) { o.Timeout, o.PingInterval = 200*time.Millisecond, 200*time.Millisecond })
	h := watch(t, s)
	h.wait(t, func(c conversation.Change) bool { return c.Missed })
	server.p.Freeze()
	defer server.p.Thaw()
	eventually(t, "an error", func() bool { _, err := s.Get(t.Context(), "a"); return errors.Is(err, conversation.ErrUnavailable) })
	server.p.Thaw()
	eventually(t, "the store to be back", func() bool { _, err := s.Get(t.Context(), "a"); return errors.Is(err, conversation.ErrNotFound) })
}

func TestOpenWithoutServer(t *testing.T) {
	t.Parallel()
	o := DefaultOptions()
	o.URL = "redis://127.0.0.1:1"
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "a"); !errors.Is(err, conversation.ErrUnavailable) {
		t.Errorf("Get: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
