package boltstore

import (
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/storetest"
)

func TestMain(m *testing.M) {
	if path := os.Getenv(envCrashWriter); path != "" {
		crashWriter(path)
	}
	goleak.VerifyTestMain(m)
}

// testClock is the real clock and what Advance added to it.
type testClock struct{ ahead atomic.Int64 }

func (c *testClock) Now() time.Time          { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *testClock) Advance(d time.Duration) { c.ahead.Add(int64(d)) }

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		t.Helper()
		path := filepath.Join(t.TempDir(), "state.db")
		clock := new(testClock)
		return storetest.Backend{
			Open: func(t *testing.T) conversation.Store {
				t.Helper()
				o := DefaultOptions()
				o.NoSync, o.Now = true, clock.Now
				s, err := Open(path, o)
				if err != nil {
					t.Fatal(err)
				}
				return s
			},
			Advance: clock.Advance,
		}
	})
}

func openTest(t *testing.T, path string, change func(*Options)) *Store {
	t.Helper()
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	s, err := Open(path, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return s
}

func TestSweepRemovesExpiredBlobs(t *testing.T) {
	t.Parallel()
	clock := new(testClock)
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"), func(o *Options) {
		o.NoSync, o.Now, o.SweepInterval = true, clock.Now, 5*time.Millisecond
	})
	for i := range 100 {
		ttl := time.Minute
		if i%2 == 0 {
			ttl = 0
		}
		if err := s.PutBlob(t.Context(), "sessions", string(rune('A'+i)), []byte("v"), ttl); err != nil {
			t.Fatal(err)
		}
	}
	clock.Advance(time.Hour)
	deadline := time.Now().Add(10 * time.Second)
	for n := s.countBlobs(t); n != 50; n = s.countBlobs(t) {
		if time.Now().After(deadline) {
			t.Fatalf("%d blobs are left, want 50", n)
		}
		time.Sleep(time.Millisecond)
	}
}

func TestUnreadableRecord(t *testing.T) {
	t.Parallel()
	s := openTest(t, filepath.Join(t.TempDir(), "state.db"), nil)
	for _, id := range []conversation.ID{"a", "b", "c"} {
		if _, err := s.Put(t.Context(), conversation.Conversation{ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	s.spoil(t, "b", []byte(`{"v":1,"id":`))

	var good, bad []conversation.ID
	for c, err := range s.All(t.Context()) {
		if err != nil {
			bad = append(bad, c.ID)
		} else {
			good = append(good, c.ID)
		}
	}
	if len(good) != 2 || len(bad) != 1 || bad[0] != "b" {
		t.Errorf("All gave %q and errors for %q", good, bad)
	}
	if _, err := s.Put(t.Context(), conversation.Conversation{ID: "b"}); err != nil {
		t.Errorf("a new registration doesn't replace an unreadable one: %v", err)
	}
}
