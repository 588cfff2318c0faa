package storetest

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func (x suite) putGet() {
	t := x.t
	s := x.open()
	_, err := s.Get(t.Context(), "a")
	wantErr(t, "Get of none", err, conversation.ErrNotFound)

	c := full("a")
	stored := put(t, s, c)
	if stored.Revision == 0 {
		t.Error("Put gave revision 0")
	}
	c.Revision = stored.Revision
	if diff := cmp.Diff(c, stored); diff != "" {
		t.Errorf("Put changed more than the revision (-want +got):\n%s", diff)
	}
	wantGet(t, s, c)

	bare := put(t, s, conversation.Conversation{ID: "b", AgentServer: "x"})
	wantGet(t, s, bare)
}

func (x suite) compareAndSwap() {
	t := x.t
	s := x.open()
	first := put(t, s, full("a"))

	_, err := s.Put(t.Context(), full("a"))
	wantErr(t, "Put as new of what is there", err, conversation.ErrConflict)

	second := first
	second.Attempts = 9
	second = put(t, s, second)
	if second.Revision == first.Revision {
		t.Error("Put kept the revision")
	}
	_, err = s.Put(t.Context(), first)
	wantErr(t, "Put on an old revision", err, conversation.ErrConflict)
	wantGet(t, s, second)

	missing := full("b")
	missing.Revision = 5
	_, err = s.Put(t.Context(), missing)
	wantErr(t, "Put with a revision of what isn't there", err, conversation.ErrConflict)
	_, err = s.Get(t.Context(), "b")
	wantErr(t, "Get after that", err, conversation.ErrNotFound)
}

// twoWriters adds up with two writers: no addition may get lost.
func (x suite) twoWriters() {
	t := x.t
	s := x.open()
	put(t, s, conversation.Conversation{ID: "a"})
	const each = 25
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range each {
				if err := add(t.Context(), s, "a"); err != nil {
					t.Errorf("adding: %v", err)
					return
				}
			}
		})
	}
	wg.Wait()
	c, err := s.Get(t.Context(), "a")
	if err != nil || c.Attempts != 2*each {
		t.Errorf("two writers came to %d, %v; want %d", c.Attempts, err, 2*each)
	}
}

func add(ctx context.Context, s conversation.Store, id conversation.ID) error {
	for {
		c, err := s.Get(ctx, id)
		if err != nil {
			return err
		}
		c.Attempts++
		if _, err = s.Put(ctx, c); !errors.Is(err, conversation.ErrConflict) {
			return err
		}
	}
}

func (x suite) remove() {
	t := x.t
	s := x.open()
	wantErr(t, "Delete of none", s.Delete(t.Context(), "a", 1), conversation.ErrNotFound)
	old := put(t, s, full("a"))
	c := put(t, s, old)
	wantErr(t, "Delete of an old revision", s.Delete(t.Context(), "a", old.Revision), conversation.ErrConflict)
	wantGet(t, s, c)
	if err := s.Delete(t.Context(), "a", c.Revision); err != nil {
		t.Errorf("Delete: %v", err)
	}
	_, err := s.Get(t.Context(), "a")
	wantErr(t, "Get of what was deleted", err, conversation.ErrNotFound)
	_, err = s.Put(t.Context(), c)
	wantErr(t, "Put of what was deleted", err, conversation.ErrConflict)
	put(t, s, full("a"))
}

func (x suite) touch() {
	t := x.t
	s := x.open()
	c := put(t, s, full("a"))
	if err := s.Touch(t.Context(), nil); err != nil {
		t.Errorf("Touch of nothing: %v", err)
	}
	touches := []conversation.Touch{
		{ID: "a", LastActive: at(50), RenewedAt: at(1)}, // one forward, one back
		{ID: "missing", LastActive: at(50)},
	}
	if err := s.Touch(t.Context(), touches); err != nil {
		t.Errorf("Touch: %v", err)
	}
	c.LastActive = at(50)
	wantGet(t, s, c)
	if err := s.Touch(t.Context(), []conversation.Touch{{ID: "a", RenewedAt: at(60)}}); err != nil {
		t.Errorf("Touch: %v", err)
	}
	c.RenewedAt = at(60)
	wantGet(t, s, c)
	_, err := s.Get(t.Context(), "missing")
	wantErr(t, "Get of what was only touched", err, conversation.ErrNotFound)
	put(t, s, c) // the revision is still the same
}

func (x suite) all() {
	t := x.t
	s := x.open()
	if ids := collect(t, s.All(t.Context())); len(ids) != 0 {
		t.Errorf("All of an empty store gave %q", ids)
	}
	want := make([]conversation.ID, 0, 3000) // more than a page, whatever the store's pages are
	var wg sync.WaitGroup
	for i := range cap(want) {
		want = append(want, conversation.ID(fmt.Sprintf("c-%05d", i)))
	}
	work := make(chan conversation.ID)
	for range 64 {
		wg.Go(func() {
			for id := range work {
				if _, err := s.Put(t.Context(), conversation.Conversation{ID: id}); err != nil {
					t.Errorf("Put: %v", err)
				}
			}
		})
	}
	for _, id := range want {
		work <- id
	}
	close(work)
	wg.Wait()
	if diff := cmp.Diff(want, collect(t, s.All(t.Context()))); diff != "" {
		t.Errorf("All (-want +got):\n%s", diff)
	}
	n := 0
	for _, err := range s.All(t.Context()) {
		if err != nil {
			t.Fatalf("All: %v", err)
		}
		if n++; n == 10 {
			break
		}
	}
	if n != 10 {
		t.Errorf("All went on after the loop had ended: %d", n)
	}
}

// allUnderWrites writes inside the loop, which must neither block nor miss what was there before.
func (x suite) allUnderWrites() {
	t := x.t
	s := x.open()
	const n = 50
	for i := range n {
		put(t, s, conversation.Conversation{ID: conversation.ID(fmt.Sprintf("m-%03d", i))})
	}
	seen := make(map[conversation.ID]int)
	for c, err := range s.All(t.Context()) {
		if err != nil {
			t.Fatalf("All: %v", err)
		}
		seen[c.ID]++
		if c.ID[0] != 'm' {
			continue
		}
		c.Attempts++
		if _, err := s.Put(t.Context(), c); err != nil {
			t.Fatalf("Put in the loop: %v", err)
		}
		put(t, s, conversation.Conversation{ID: "a" + c.ID, LastError: &conversation.Failure{Message: string(make([]byte, 4096))}})
		put(t, s, conversation.Conversation{ID: "z" + c.ID})
	}
	for i := range n {
		if id := conversation.ID(fmt.Sprintf("m-%03d", i)); seen[id] != 1 {
			t.Errorf("All gave %q %d times", id, seen[id])
		}
	}
}
