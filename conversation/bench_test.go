package conversation_test

import (
	"context"
	"fmt"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/boltstore"
)

const many = 100_000

func manyID(i int) conversation.ID {
	return conversation.ID(fmt.Sprintf("%08x-d9cb-469f-a165-708677289%03x", i*2654435761, i%4096))
}

// manyStore returns a store with 100,000 conversations that have generation 1 of tools.
func manyStore(b *testing.B) *boltstore.Store {
	b.Helper()
	s := openStore(b, filepath.Join(b.TempDir(), "state.db"))
	if err := s.PutGeneration(b.Context(), conversation.Generation{Server: "tools", Number: 1, Hash: "sha256:a", At: time.Now()}); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	const writers = 512
	for w := range writers {
		wg.Go(func() {
			for i := w; i < many; i += writers {
				now := time.Now().UTC()
				if _, err := s.Put(b.Context(), conversation.Conversation{
					ID: manyID(i), AgentServer: "default", Source: conversation.SourceURL,
					Servers: map[string]conversation.Applied{"tools": {
						Generation: 1, Hash: "sha256:0123456789012345678901234567890123456789012345678901234567890123",
						How: conversation.HowObserved, At: now,
					}},
					CreatedAt: now, RegisteredAt: now, RenewedAt: now, LastActive: now,
				}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
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

// loop runs fn as b.Loop does and reports the processor time too, which other processes disturb less.
func loop(b *testing.B, fn func(i int)) {
	b.Helper()
	i := 0
	began := cpuTime(b)
	for b.Loop() {
		fn(i)
		i++
	}
	b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/1000/float64(i), "cpu-ms/op")
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkLoad100k(b *testing.B) {
	s := manyStore(b)
	before := heap()
	var r *conversation.Registry
	loop(b, func(int) { r = loadMany(b, s) })
	b.ReportMetric(float64(heap()-before)/many, "B/conversation")
	runtime.KeepAlive(r)
}

// BenchmarkSettle100k begins a generation and looks who needs it.
func BenchmarkSettle100k(b *testing.B) {
	r := loadMany(b, manyStore(b))
	b.ReportAllocs()
	loop(b, func(i int) {
		if _, _, err := r.Settle(b.Context(), "tools", strconv.Itoa(i), nil, time.Now()); err != nil {
			b.Fatal(err)
		}
		if ids, _ := r.Due(time.Now()); len(ids) != many {
			b.Fatalf("%d are due", len(ids))
		}
	})
}

// BenchmarkDueLast100k is about the last conversations of many that are due.
func BenchmarkDueLast100k(b *testing.B) {
	r := loadMany(b, manyStore(b))
	for i := range 100 {
		if err := r.Refresh(b.Context(), manyID(i)); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	loop(b, func(int) {
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
	loop(b, func(int) { r.Counts() })
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
	s := conversation.Sighting{ID: manyID(7), AgentServer: "default", Server: "tools", Source: conversation.SourceURL}
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
					id := manyID(n)
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
	loop(b, func(int) {
		for i := range many {
			r.Seen(conversation.Sighting{ID: manyID(i), AgentServer: "default", Server: "tools", Source: conversation.SourceURL})
		}
		ctx, cancel := context.WithCancel(b.Context())
		cancel()
		if err := r.Run(ctx); err != nil { // writes before it ends
			b.Fatal(err)
		}
	})
}
