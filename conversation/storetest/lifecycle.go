package storetest

import (
	"context"
	"fmt"
	"sync"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func (x suite) reopen() {
	t := x.t
	s := x.backend.Open(t)
	c := put(t, s, full("a"))
	if err := s.PutGeneration(t.Context(), generation(1, "a")); err != nil {
		t.Fatal(err)
	}
	putBlob(t, s, "sessions", "k", "v", 0)
	if err := s.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}

	s = x.open()
	wantGet(t, s, c)
	if g, err := s.Generation(t.Context(), "tools"); err != nil || g.Hash != "a" {
		t.Errorf("Generation after reopening = %+v, %v", g, err)
	}
	wantBlob(t, s, "sessions", "k", "v")
	put(t, s, c)
}

func (x suite) unusualIDs() {
	t := x.t
	s := x.open()
	ids := []conversation.ID{"A", "a", "größe", "\u65e5\u672c", "a b/c?d#e", "\U0001f600"}
	for i, id := range ids {
		put(t, s, conversation.Conversation{ID: id, Attempts: i})
	}
	for i, id := range ids {
		got, err := s.Get(t.Context(), id)
		if err != nil || got.Attempts != i {
			t.Errorf("Get(%q) = %d, %v; want %d", id, got.Attempts, err, i)
		}
		putBlob(t, s, "sessions", string(id), string(id), 0)
	}
	for _, id := range ids {
		wantBlob(t, s, "sessions", string(id), string(id))
	}
	if _, err := s.Put(t.Context(), conversation.Conversation{}); err == nil {
		t.Error("Put without an id succeeded")
	}
	put(t, s, conversation.Conversation{ID: "after that"})
}

func (x suite) endedContext() {
	t := x.t
	s := x.open()
	put(t, s, full("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Get(ctx, "a")
	wantErr(t, "Get", err, context.Canceled)
	_, err = s.Put(ctx, full("b"))
	wantErr(t, "Put", err, context.Canceled)
	for _, err := range s.All(ctx) {
		wantErr(t, "All", err, context.Canceled)
	}
}

func (x suite) closed() {
	t := x.t
	s := x.backend.Open(t)
	c := put(t, s, full("a"))
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	ctx := t.Context()
	_, err := s.Get(ctx, "a")
	wantErr(t, "Get", err, conversation.ErrClosed)
	_, err = s.Put(ctx, c)
	wantErr(t, "Put", err, conversation.ErrClosed)
	wantErr(t, "Touch", s.Touch(ctx, []conversation.Touch{{ID: "a", LastActive: at(59)}}), conversation.ErrClosed)
	wantErr(t, "Delete", s.Delete(ctx, "a", c.Revision), conversation.ErrClosed)
	_, err = s.Generation(ctx, "tools")
	wantErr(t, "Generation", err, conversation.ErrClosed)
	wantErr(t, "PutGeneration", s.PutGeneration(ctx, generation(1, "a")), conversation.ErrClosed)
	_, err = s.Blob(ctx, "sessions", "k")
	wantErr(t, "Blob", err, conversation.ErrClosed)
	wantErr(t, "PutBlob", s.PutBlob(ctx, "sessions", "k", nil, 0), conversation.ErrClosed)
	wantErr(t, "DeleteBlob", s.DeleteBlob(ctx, "sessions", "k"), conversation.ErrClosed)
	n := 0
	for _, err := range s.All(ctx) {
		n++
		wantErr(t, "All", err, conversation.ErrClosed)
	}
	if n != 1 {
		t.Errorf("All of a closed store yielded %d times, want 1", n)
	}
}

// closeUnderLoad closes while others write: each write is either done, and there after reopening, or refused with ErrClosed.
func (x suite) closeUnderLoad() {
	t := x.t
	s := x.backend.Open(t)
	const writers = 8
	written := make([]uint64, writers)
	started := make(chan struct{}, writers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			c := conversation.Conversation{ID: conversation.ID(fmt.Sprintf("w-%d", w))}
			for {
				stored, err := s.Put(t.Context(), c)
				if err != nil {
					wantErr(t, "Put while closing", err, conversation.ErrClosed)
					return
				}
				c, written[w] = stored, stored.Revision
				if stored.Revision == 1 {
					started <- struct{}{}
				}
			}
		})
	}
	for range writers {
		<-started
	}
	if err := s.Close(); err != nil {
		t.Errorf("Close: %v", err)
	}
	wg.Wait()

	s = x.open()
	for w, revision := range written {
		c, err := s.Get(t.Context(), conversation.ID(fmt.Sprintf("w-%d", w)))
		if err != nil || c.Revision != revision {
			t.Errorf("writer %d wrote revision %d, after reopening it is %d, %v", w, revision, c.Revision, err)
		}
	}
}
