//go:build unix

package storetest

import (
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// Many is how many conversations benchmarks work with.
const Many = 100_000

// ManyID is the id of one of many conversations.
func ManyID(i int) conversation.ID {
	return conversation.ID(fmt.Sprintf("%08x-d9cb-469f-a165-708677289%03x", i*2654435761, i%4096))
}

// Fill gives a store many conversations that have generation 1 of tools. So many writers work at once.
func Fill(b *testing.B, s conversation.Store, writers int) {
	b.Helper()
	if err := s.PutGeneration(b.Context(), conversation.Generation{Server: "tools", Number: 1, Hash: "sha256:a", At: time.Now()}); err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; i < Many; i += writers {
				now := time.Now().UTC()
				if _, err := s.Put(b.Context(), conversation.Conversation{
					ID: ManyID(i), AgentServer: "default", Source: conversation.SourceURL,
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
}

// Loop runs fn as b.Loop does and reports the processor time too, which other processes disturb less.
func Loop(b *testing.B, fn func(i int)) {
	b.Helper()
	i := 0
	began := cpuTime(b)
	for b.Loop() {
		fn(i)
		i++
	}
	b.ReportMetric(float64((cpuTime(b)-began).Microseconds())/1000/float64(i), "cpu-ms/op")
}

// Load measures load, which reads many conversations into a registry, and the memory that they take there.
func Load(b *testing.B, load func() *conversation.Registry) {
	b.Helper()
	before := heap()
	var r *conversation.Registry
	Loop(b, func(int) { r = load() })
	b.ReportMetric(float64(heap()-before)/Many, "B/conversation")
	runtime.KeepAlive(r)
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
