//go:build unix

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// pause is the time between two calls of one client of a crowd.
const pause = 10 * time.Millisecond

// tally counts calls, and what went wrong with those that failed.
type tally struct {
	mu     sync.Mutex
	calls  int
	failed map[string]int
}

func (t *tally) add(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls++
	if err != nil {
		if t.failed == nil {
			t.failed = map[string]int{}
		}
		t.failed[err.Error()]++
	}
}

// err says how many calls failed, and how most of them did; nil if none.
func (t *tally) err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.failed) == 0 {
		return nil
	}
	kinds := slices.SortedFunc(maps.Keys(t.failed), func(a, b string) int {
		return cmp.Or(cmp.Compare(t.failed[b], t.failed[a]), cmp.Compare(a, b))
	})
	sum := 0
	for _, n := range t.failed {
		sum += n
	}
	return fmt.Errorf("%d of %d calls failed: %s", sum, t.calls, strings.Join(kinds[:min(2, len(kinds))], "; "))
}

// crowd is clients that call a tool all the time, which only reads and says so.
type crowd struct {
	tally   tally
	clients []*client
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu   sync.Mutex
	done []int  // calls completed, by client
	well []bool // whether the last one succeeded
}

// crowd connects n clients that speak a revision and lets them begin.
func (w *world) crowd(ctx context.Context, n int, revision string) (*crowd, error) {
	c := &crowd{done: make([]int, n), well: make([]bool, n)}
	for range n {
		one := newClient(w.url, revision)
		if revision != stateless {
			var err error
			if one, err = w.client(ctx); err != nil {
				return nil, err
			}
		}
		c.clients = append(c.clients, one)
	}
	until, cancel := context.WithCancel(ctx)
	c.cancel = cancel
	for i := range c.clients {
		c.wg.Go(func() { c.work(ctx, until, i, w.o.Patience) })
	}
	if err := c.await(ctx, w.o.Patience, 2); err != nil {
		c.stop()
		return nil, fmt.Errorf("before the replacement: %w", err)
	}
	if err := c.tally.err(); err != nil {
		c.stop()
		return nil, fmt.Errorf("before the replacement: %w", err)
	}
	return c, nil
}

// work is what one client does until the time comes; the call that it has begun it finishes.
func (c *crowd) work(ctx, until context.Context, i int, patience time.Duration) {
	for n := 0; until.Err() == nil; n++ {
		one, cancel := context.WithTimeout(ctx, patience)
		want := fmt.Sprintf(`{"account":"%d-%d"}`, i, n)
		got, err := c.clients[i].call(one, "balance", json.RawMessage(want))
		cancel()
		if ctx.Err() != nil {
			return
		}
		if err == nil && strings.ReplaceAll(got, " ", "") != want {
			err = errors.New("the answer is another call's")
		}
		c.tally.add(err)
		c.mu.Lock()
		c.done[i]++
		c.well[i] = err == nil
		c.mu.Unlock()
		pass(until, pause)
	}
}

// await waits until each client has completed n more calls.
func (c *crowd) await(ctx context.Context, patience time.Duration, n int) error {
	c.mu.Lock()
	goals := slices.Clone(c.done)
	c.mu.Unlock()
	return eventually(ctx, patience+grace, "the clients' calls", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, goal := range goals {
			if c.done[i] < goal+n {
				return false
			}
		}
		return true
	})
}

// goOn waits for calls of each client after a replacement. Where none come, what failed until then says more about it.
func (c *crowd) goOn(ctx context.Context, patience time.Duration) error {
	err := c.await(ctx, patience, 3)
	if err != nil && ctx.Err() == nil {
		return errors.Join(c.verdict(), err)
	}
	return err
}

// stop lets the clients finish their calls.
func (c *crowd) stop() {
	c.cancel()
	c.wg.Wait()
}

// verdict stops the clients and says what failed.
func (c *crowd) verdict() error {
	c.stop()
	err := c.tally.err()
	if err == nil {
		return nil
	}
	well := 0
	for _, ok := range c.well {
		if ok {
			well++
		}
	}
	return fmt.Errorf("%w (%d of %d clients work afterwards)", err, well, len(c.well))
}
