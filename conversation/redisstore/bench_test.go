package redisstore

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/storetest"
)

// manyStore returns a store with 100,000 conversations that have generation 1 of tools.
func manyStore(b *testing.B) *Store {
	b.Helper()
	s := startServer(b, "--appendonly", "no").open(b, "bench", func(o *Options) { o.Life = 7 * 24 * time.Hour })
	storetest.Fill(b, s, 64)
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

// BenchmarkLoad100k is what a start costs.
func BenchmarkLoad100k(b *testing.B) {
	s := manyStore(b)
	storetest.Load(b, func() *conversation.Registry { return loadMany(b, s) })
}

// BenchmarkResync100k is what comparing memory with the store costs, which happens every few minutes.
func BenchmarkResync100k(b *testing.B) {
	s := manyStore(b)
	storetest.Loop(b, func(int) {
		n := 0
		for _, err := range s.Heads(b.Context()) {
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
		if n != storetest.Many {
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
	storetest.Loop(b, func(i int) {
		if _, _, err := r.Settle(b.Context(), "tools", strconv.Itoa(i), nil, time.Now()); err != nil {
			b.Fatal(err)
		}
		ids, _ := r.Due(time.Now())
		if len(ids) != storetest.Many {
			b.Fatalf("%d are due", len(ids))
		}
		work := make(chan conversation.ID, storetest.Many)
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
