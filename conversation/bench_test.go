package conversation_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/boltstore"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/storetest"
)

// manyStore returns a store with 100,000 conversations that have generation 1 of tools.
func manyStore(b *testing.B) *boltstore.Store {
	b.Helper()
	s := openStore(b, filepath.Join(b.TempDir(), "state.db"))
	storetest.Fill(b, s, 512)
	return s
}

func loadMany(b *testing.B, s conversation.Store) *conversation.Registry {
	b.Helper()
	r, err := conversation.NewRegistry(testConfig(), conversation.RegistryDeps{Store: s})
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	return r
}

func BenchmarkLoad100k(b *testing.B) {
	s := manyStore(b)
	storetest.Load(b, func() *conversation.Registry { return loadMany(b, s) })
}

// BenchmarkSettle100k begins a generation and looks who needs it.
func BenchmarkSettle100k(b *testing.B) {
	r := loadMany(b, manyStore(b))
	b.ReportAllocs()
	storetest.Loop(b, func(i int) {
		if _, _, err := r.Settle(b.Context(), "tools", strconv.Itoa(i), nil, time.Now()); err != nil {
			b.Fatal(err)
		}
		if ids, _ := r.Due(time.Now()); len(ids) != storetest.Many {
			b.Fatalf("%d are due", len(ids))
		}
	})
}

// BenchmarkDueLast100k is about the last conversations of many that are due.
func BenchmarkDueLast100k(b *testing.B) {
	r := loadMany(b, manyStore(b))
	for i := range 100 {
		if err := r.Refresh(b.Context(), storetest.ManyID(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	storetest.Loop(b, func(int) {
		if ids, _ := r.Due(time.Now()); len(ids) != 100 {
			b.Fatalf("%d are due", len(ids))
		}
	})
}

func BenchmarkCounts100k(b *testing.B) {
	s := manyStore(b)
	now := time.Now()
	r, err := conversation.NewRegistry(testConfig(), conversation.RegistryDeps{
		Store: s, Now: func() time.Time { now = now.Add(2 * time.Second); return now }, // nothing is cached
	})
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	if _, _, err := r.Settle(b.Context(), "tools", "other", nil, now); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	storetest.Loop(b, func(int) { r.Counts() })
}

func BenchmarkListPage100k(b *testing.B) {
	r := loadMany(b, manyStore(b))
	for b.Loop() {
		if p, err := r.List(conversation.Query{Cursor: "8", Limit: 100}); err != nil || len(p.Items) != 100 {
			b.Fatal(err)
		}
	}
}

// BenchmarkSeen is what each request of a known conversation costs.
func BenchmarkSeen(b *testing.B) {
	r := loadMany(b, manyStore(b))
	b.ReportAllocs()
	s := conversation.Sighting{ID: storetest.ManyID(7), AgentServer: "default", Server: "tools", Source: conversation.SourceURL}
	for b.Loop() {
		r.Seen(s)
	}
}

func BenchmarkRegister(b *testing.B) {
	for _, writers := range []int{1, 64} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			s, err := boltstore.Open(filepath.Join(b.TempDir(), "state.db"), boltstore.DefaultOptions()) // really on disk
			if err != nil {
				b.Fatal(err)
			}
			defer func() {
				if err := s.Close(); err != nil {
					b.Error(err)
				}
			}()
			r := loadMany(b, s)
			b.SetParallelism(max(1, writers/runtime.GOMAXPROCS(0)))
			var mu sync.Mutex
			n := 0
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					mu.Lock()
					id := storetest.ManyID(n)
					n++
					mu.Unlock()
					if _, _, err := r.Register(b.Context(), conversation.Registration{ID: id, Source: conversation.SourceAdmin}); err != nil {
						b.Error(err)
					}
				}
			})
		})
	}
}

// BenchmarkFlush100k writes the signs of life of 100,000 conversations that were all active.
func BenchmarkFlush100k(b *testing.B) {
	r := loadMany(b, manyStore(b))
	storetest.Loop(b, func(int) {
		for i := range storetest.Many {
			r.Seen(conversation.Sighting{ID: storetest.ManyID(i), AgentServer: "default", Server: "tools", Source: conversation.SourceURL})
		}
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		if err := r.Run(ctx); err != nil { // writes before it ends
			b.Fatal(err)
		}
	})
}
