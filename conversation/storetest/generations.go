package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func generation(number uint64, hash string) conversation.Generation {
	return conversation.Generation{
		Server: "tools", Number: number, Hash: hash, At: at(int(number)),
		Tools: map[string]string{"search": "aa", "größe": "bb"},
	}
}

func (x suite) generations() {
	t := x.t
	s := x.open()
	_, err := s.Generation(t.Context(), "tools")
	wantErr(t, "Generation of none", err, conversation.ErrNotFound)
	wantErr(t, "PutGeneration that doesn't begin with 1", s.PutGeneration(t.Context(), generation(2, "x")), conversation.ErrConflict)

	for i, hash := range []string{"a", "b", "a"} {
		g := generation(uint64(i+1), hash)
		if err := s.PutGeneration(t.Context(), g); err != nil {
			t.Fatalf("PutGeneration(%d): %v", g.Number, err)
		}
		wantErr(t, "the same again", s.PutGeneration(t.Context(), g), conversation.ErrConflict)
		got, err := s.Generation(t.Context(), "tools")
		if err != nil {
			t.Fatalf("Generation: %v", err)
		}
		if diff := cmp.Diff(g, got); diff != "" {
			t.Errorf("Generation (-want +got):\n%s", diff)
		}
	}
	wantErr(t, "a number left out", s.PutGeneration(t.Context(), generation(5, "c")), conversation.ErrConflict)
	other := generation(1, "a")
	other.Server = "other"
	if err := s.PutGeneration(t.Context(), other); err != nil {
		t.Errorf("PutGeneration of another server: %v", err)
	}
}

// generationRace has several writers claim each number: exactly one may get it.
func (x suite) generationRace() {
	t := x.t
	s := x.open()
	const writers, numbers = 4, 10
	won := make([][writers]bool, numbers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for n := range numbers {
				for {
					err := s.PutGeneration(t.Context(), generation(uint64(n+1), strconv.Itoa(w)))
					won[n][w] = err == nil
					if err != nil && !errors.Is(err, conversation.ErrConflict) {
						t.Errorf("PutGeneration: %v", err)
						return
					}
					g, err := s.Generation(t.Context(), "tools")
					if err == nil && g.Number > uint64(n) {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	for n, winners := range won {
		count := 0
		for _, w := range winners {
			if w {
				count++
			}
		}
		if count != 1 {
			t.Errorf("number %d was given %d times", n+1, count)
		}
	}
}

func wantBlob(t *testing.T, s conversation.Store, bucket, key, want string) {
	t.Helper()
	got, err := s.Blob(t.Context(), bucket, key)
	if err != nil || string(got) != want {
		t.Errorf("Blob(%q, %q) = %q, %v; want %q", bucket, key, got, err, want)
	}
}

func wantNoBlob(t *testing.T, s conversation.Store, key string) {
	t.Helper()
	_, err := s.Blob(t.Context(), "sessions", key)
	wantErr(t, fmt.Sprintf("Blob(%q)", key), err, conversation.ErrNotFound)
}

func putBlob(t *testing.T, s conversation.Store, bucket, key, value string, ttl time.Duration) {
	t.Helper()
	if err := s.PutBlob(t.Context(), bucket, key, []byte(value), ttl); err != nil {
		t.Fatalf("PutBlob(%q, %q): %v", bucket, key, err)
	}
}

func (x suite) blobs() {
	t := x.t
	s := x.open()
	wantNoBlob(t, s, "k")
	putBlob(t, s, "sessions", "k", "one", 0)
	putBlob(t, s, "params", "k", "other", 0)
	wantBlob(t, s, "sessions", "k", "one")
	wantBlob(t, s, "params", "k", "other")
	putBlob(t, s, "sessions", "k", "two", 0)
	wantBlob(t, s, "sessions", "k", "two")
	putBlob(t, s, "sessions", "empty", "", 0)
	wantBlob(t, s, "sessions", "empty", "")
	binary := "\x00\xff{\"" + string(make([]byte, 1<<20))
	putBlob(t, s, "sessions", "big", binary, 0)
	wantBlob(t, s, "sessions", "big", binary)
	for range 2 {
		if err := s.DeleteBlob(t.Context(), "sessions", "k"); err != nil {
			t.Errorf("DeleteBlob: %v", err)
		}
		wantNoBlob(t, s, "k")
	}
	wantBlob(t, s, "params", "k", "other")
}

func (x suite) blobLife() {
	t := x.t
	s := x.open()
	putBlob(t, s, "sessions", "short", "s", time.Minute)
	putBlob(t, s, "sessions", "long", "l", time.Hour)
	putBlob(t, s, "sessions", "good", "g", 0)
	putBlob(t, s, "sessions", "renewed", "r", time.Minute)
	putBlob(t, s, "sessions", "made lasting", "m", time.Minute)
	x.backend.Advance(50 * time.Second)
	wantBlob(t, s, "sessions", "short", "s")
	putBlob(t, s, "sessions", "renewed", "r2", time.Minute)
	putBlob(t, s, "sessions", "made lasting", "m2", 0)
	x.backend.Advance(20 * time.Second)
	wantNoBlob(t, s, "short")
	wantBlob(t, s, "sessions", "renewed", "r2")
	wantBlob(t, s, "sessions", "long", "l")
	putBlob(t, s, "sessions", "short", "again", time.Minute)
	wantBlob(t, s, "sessions", "short", "again")
	x.backend.Advance(24 * time.Hour)
	wantNoBlob(t, s, "long")
	wantNoBlob(t, s, "renewed")
	wantBlob(t, s, "sessions", "good", "g")
	wantBlob(t, s, "sessions", "made lasting", "m2")
}
