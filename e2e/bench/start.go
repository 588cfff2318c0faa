package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/boltstore"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/redisstore"
)

const (
	// idleBefore is how long a sidecar is left alone before it counts as idle,
	// idleTime how long its use of the processor is measured then.
	idleBefore = 20 * time.Second
	idleTime   = 10 * time.Second
	// fillers is how many write at once: stores are quick when many do.
	fillers = 64
)

// place is where a sidecar keeps its conversations.
type place struct {
	name string
	args []string // of the sidecar
	open func(context.Context) (conversation.Store, error)
}

// starts measures what registered conversations cost a sidecar: at its start, and
// when nothing happens.
func starts(ctx context.Context, b *bench) error {
	t := newTable("start of a sidecar with registered conversations, until it is ready and has all of them", "",
		"conversations", "ms to ready", "slowest", "CPU ms", "MiB when ready", "MiB idle", "idle CPU %")

	counts := []int{1000, 10_000, 100_000}
	if b.short {
		counts = counts[:1]
	}

	a, err := newAgents()
	if err != nil {
		return err
	}
	defer a.close()

	for _, n := range counts {
		dir, err := os.MkdirTemp(b.dir, "start")
		if err != nil {
			return err
		}

		if err := b.starts(ctx, t, filePlace(dir, a), n); err != nil {
			return err
		}

		redis, p, err := b.redisPlace(ctx, dir, a)
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Fprintln(b.out, "\nSKIPPED: redis-server is not installed, so nothing is said of starts with Redis")
			continue
		}

		if err != nil {
			return err
		}

		err = b.starts(ctx, t, redis, n)

		p.stop()

		if err != nil {
			return err
		}
	}

	return t.print(b.out)
}

func filePlace(dir string, a *agents) place {
	state := filepath.Join(dir, "state.db")

	return place{name: "file", args: []string{"--agent-server", "http://" + a.addr, "--state", state}, open: func(context.Context) (conversation.Store, error) {
		o := boltstore.DefaultOptions()
		o.NoSync = true

		return boltstore.Open(state, o)
	}}
}

// redisPlace starts a Redis.
func (b *bench) redisPlace(ctx context.Context, dir string, a *agents) (place, *program, error) {
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return place{}, nil, err
	}

	key := filepath.Join(dir, "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("5e", 32)), 0o600); err != nil {
		return place{}, nil, err
	}

	addr, err := freeAddr()
	if err != nil {
		return place{}, nil, err
	}

	p, err := start(ctx, "redis-server", addr, path, "--bind", "127.0.0.1", "--port", addr[len("127.0.0.1:"):], "--save", "", "--dir", dir)

	url := "redis://" + addr

	return place{name: "Redis", args: []string{"--agent-server", "http://" + a.addr, "--redis", url, "--session-key-file", key}, open: func(ctx context.Context) (conversation.Store, error) {
		o := redisstore.DefaultOptions()
		o.URL, o.Timeout = url, patience

		return redisstore.Open(ctx, o)
	}}, p, err
}

func (b *bench) starts(ctx context.Context, t *table, at place, n int) error {
	if err := b.prepare(ctx, b.backend.addr, at, n); err != nil {
		return fmt.Errorf("preparing %d conversations (%s): %w", n, at.name, err)
	}

	type one struct{ ready, cpu, memory float64 }

	var (
		all           []one
		memory, share float64
	)

	for i := range b.rounds {
		s, err := b.launchSidecar(ctx, b.backend.addr, at.args...)
		if err != nil {
			return err
		}

		if err = s.waitReady(ctx); err != nil {
			return fmt.Errorf("%d conversations (%s): %w", n, at.name, err)
		}

		r := one{ready: float64(time.Since(s.began).Microseconds()) / 1000, memory: float64(s.memory("VmRSS")) / 1024}

		used, err := s.cpu()
		r.cpu = float64(used.Milliseconds())
		all = append(all, r)

		if err == nil {
			err = s.holds(ctx, n)
		}

		if err == nil && i == 0 {
			memory, share, err = b.idles(ctx, s)
		}

		s.stop()

		if err != nil {
			return fmt.Errorf("%d conversations (%s): %w", n, at.name, err)
		}
	}

	ready := func(r one) float64 { return r.ready }
	t.row(at.name, float64(n), median(all, ready), slowest(all, ready), median(all, func(r one) float64 { return r.cpu }),
		median(all, func(r one) float64 { return r.memory }), memory, share)

	return nil
}

// idles measures the memory of a sidecar of which nobody wants anything, and its
// share of a processor.
func (b *bench) idles(ctx context.Context, s *sidecar) (memory, share float64, err error) {
	before, over := idleBefore, idleTime
	if b.short {
		before, over = b.time, b.time
	}

	if err := pause(ctx, before); err != nil {
		return 0, 0, err
	}

	first, err := s.cpu()
	if err == nil {
		err = pause(ctx, over)
	}

	if err != nil {
		return 0, 0, err
	}

	last, err := s.cpu()

	return float64(s.memory("VmRSS")) / 1024, 100 * float64(last-first) / float64(over), err
}

// holds looks whether a sidecar has all conversations, and nothing to do for them.
func (s *sidecar) holds(ctx context.Context, n int) error {
	v, err := s.metric(ctx, `mcp_sidecar_conversations{agent_server="default",state="current"}`)
	if err == nil && v != float64(n) {
		err = fmt.Errorf("%v conversations are current", v)
	}

	return err
}

// prepare registers conversations that have what the backend offers.
func (b *bench) prepare(ctx context.Context, backend string, at place, n int) error {
	s, err := b.launchSidecar(ctx, backend, at.args...)
	if err != nil {
		return err
	}

	offers, err := s.waitSettled(ctx)

	s.stop()

	if err != nil {
		return err
	}

	store, err := at.open(ctx)
	if err != nil {
		return err
	}

	return errors.Join(fill(ctx, store, n, offers), store.Close())
}

func fill(ctx context.Context, store conversation.Store, n int, offers admin.Server) error {
	var (
		wg   sync.WaitGroup
		errs [fillers]error
	)

	now := time.Now().UTC()

	for w := range fillers {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += fillers {
				_, errs[w] = store.Put(ctx, conversation.Conversation{
					ID: conversationID(i), AgentServer: "default", Source: conversation.SourceURL,
					Servers: map[string]conversation.Applied{offers.Name: {
						Generation: offers.Generation, Hash: offers.Hash, How: conversation.HowObserved, At: now,
					}},
					CreatedAt: now, RegisteredAt: now, RenewedAt: now, LastActive: now,
				})
			}
		})
	}

	wg.Wait()

	return errors.Join(errs[:]...)
}

// conversationID is a UUID, as most agent servers make them, for the ith conversation.
func conversationID(i int) conversation.ID {
	return conversation.ID(fmt.Sprintf("%08x-d9cb-469f-a165-7086%08x", uint32(i*2654435761), i))
}
