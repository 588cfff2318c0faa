package redisstore

import (
	"context"
	"fmt"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const many = 100_000

func manyID(i int) conversation.ID {
	return conversation.ID(fmt.Sprintf("%08x-d9cb-469f-a165-708677289%03x", i*2654435761, i%4096))
}

// manyStore returns a store with 100,000 conversations that have generation 1 of tools.
func manyStore(b *testing.B) *Store {
	b.Helper()
	s := startServer(b, "--appendonly", "no").open(b, "bench", func(o *Options) { o.Life = 7 * 24 * time.Hour })
	if err := s.PutGeneration(b.Context(), conversation.Generation{Server: "tools", Number: 1, Hash: "sha256:a", At: time.Now()}); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	const writers = 64
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

func loadMany(b *testing.B, s *Store) *conversation.Registry {
	b.Helper()
	cfg := conversation.DefaultRegistryConfig()
	cfg.Servers, cfg.AgentServers = []string{"tools"}, map[string]conversation.AgentServerSettings{"default": {}}
	r, err := conversation.NewRegistry(cfg, conversation.RegistryDeps{Store: s, Shared: s})
	if err != nil {
		b.Fatal(err)
	}
	if err := r.Load(b.Context()); err != nil {
		b.Fatal(err)
	}
	return r
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
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

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// BenchmarkLoad100k is what a start costs.
func BenchmarkLoad100k(b *testing.B) {
	s := manyStore(b)
	before := heap()
	var r *conversation.Registry
	loop(b, func(int) { r = loadMany(b, s) })
	b.ReportMetric(float64(heap()-before)/many, "B/conversation")
	runtime.KeepAlive(r)
}

// BenchmarkResync100k is what comparing memory with the store costs, which happens every few minutes.
func BenchmarkResync100k(b *testing.B) {
	s := manyStore(b)
	loop(b, func(int) {
		n := 0
		for _, err := range s.Heads(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != many {
			b.Fatalf("%d heads", n)
		}
	})
}

// BenchmarkSwap100k gives all conversations another generation, one record each, and lets a second replica hear of it.
func BenchmarkSwap100k(b *testing.B) {
	s := manyStore(b)
	server := &server{tb: b, addr: s.o.URL[len("redis://"):]}
	r, other := loadMany(b, s), loadMany(b, s)
	second := server.open(b, "bench")
	ctx, cancel := context.WithCancel(b.Context())
	var wg sync.WaitGroup
	b.Cleanup(wg.Wait)
	b.Cleanup(cancel)
	listens := make(chan struct{}, 1)
	wg.Go(func() {
		_ = second.Watch(ctx, func(c conversation.Change) {
			other.Apply(c)
			if c.Missed {
				listens <- struct{}{}
			}
		})
	})
	<-listens
	loop(b, func(i int) {
		if _, _, err := r.Settle(b.Context(), "tools", strconv.Itoa(i), nil, time.Now()); err != nil {
			b.Fatal(err)
		}
		ids, _ := r.Due(time.Now())
		if len(ids) != many {
			b.Fatalf("%d are due", len(ids))
		}
		work := make(chan conversation.ID, many)
		for _, id := range ids {
			work <- id
		}
		close(work)
		var writers sync.WaitGroup
		for range 32 {
			writers.Go(func() {
				for id := range work {
					v, err := r.Get(id)
					if err == nil {
						_, err = r.Update(b.Context(), id, func(c *conversation.Conversation) error {
							t := v.Servers["tools"]
							c.Refreshed(v, map[string]conversation.Applied{"tools": {Generation: t.Desired, Hash: t.DesiredHash, How: conversation.HowObserved, At: time.Now()}})
							return nil
						})
					}
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		writers.Wait()
		eventually(b, "the other to know", func() bool { ids, _ := other.Due(time.Now()); return len(ids) == 0 })
	})
}
