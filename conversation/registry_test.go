package conversation_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestConfigRefuses(t *testing.T) {
	t.Parallel()
	store := openStore(t, filepath.Join(t.TempDir(), "state.db"))
	if _, err := conversation.NewRegistry(testConfig(), conversation.RegistryDeps{}); err == nil {
		t.Error("a registry without a store")
	}
	cfg := testConfig()
	cfg.Servers = []string{"a b"}
	cfg.AgentServers["c/d"] = conversation.AgentServerSettings{IdleAfter: -1}
	cfg.TTL, cfg.FlushInterval = -1, 0
	_, err := conversation.NewRegistry(cfg, conversation.RegistryDeps{Store: store})
	if err == nil {
		t.Fatal("an invalid configuration was accepted")
	}
	for _, want := range []string{`"a b"`, `"c/d"`, "IdleAfter", "TTL", "FlushInterval"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error doesn't tell of %s: %v", want, err)
		}
	}
	r, err := conversation.NewRegistry(testConfig(), conversation.RegistryDeps{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.SetConfig(cfg); err == nil {
		t.Error("SetConfig accepted an invalid configuration")
	}
	if len(r.Counts()) != 2 {
		t.Error("the last good configuration isn't in force")
	}
}

func TestSetConfigSignals(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c", LastActive: time.Now().Add(-idleAfter)})
		h.wantState("c", conversation.StateDormant)
		h.drainChanged()
		cfg := testConfig()
		cfg.AgentServers["default"] = conversation.AgentServerSettings{IdleAfter: 2 * idleAfter}
		if err := h.SetConfig(cfg); err != nil {
			t.Fatal(err)
		}
		if !h.drainChanged() {
			t.Error("SetConfig wasn't signalled")
		}
		h.wantDue("c")
	})
}

// spoiltStore has records that can't be read, or can't be iterated to the end.
type spoiltStore struct {
	conversation.Store
	ends bool
}

func (s spoiltStore) All(context.Context) iter.Seq2[conversation.Conversation, error] {
	return func(yield func(conversation.Conversation, error) bool) {
		if !yield(conversation.Conversation{ID: "bad"}, errors.New("unreadable")) || s.ends &&
			!yield(conversation.Conversation{}, errAway) {
			return
		}
		yield(conversation.Conversation{
			ID: "good", AgentServer: "default", Servers: map[string]conversation.Applied{"tools": {}},
			LastActive: time.Now().Add(100 * time.Hour), RenewedAt: time.Now().Add(100 * time.Hour), // by a clock that was wrong
			Condition: conversation.ConditionFailed, NextAttempt: time.Now().Add(100 * time.Hour), Revision: 1,
		}, nil)
	}
}

func TestLoad(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		var logs bytes.Buffer
		load := func(ends bool) (*harness, error) {
			r, err := conversation.NewRegistry(testConfig(), conversation.RegistryDeps{
				Store: spoiltStore{h.store, ends}, Logger: slog.New(slog.NewTextHandler(&logs, nil)),
			})
			if err != nil {
				t.Fatal(err)
			}
			return &harness{Registry: r, t: t, store: h.store}, r.Load(t.Context())
		}
		r, err := load(false)
		if err != nil {
			t.Fatal(err)
		}
		r.wantThere("good")
		if !strings.Contains(logs.String(), "conversation=bad") {
			t.Errorf("nothing is said of the unreadable record: %s", &logs)
		}
		r.settle("tools", "A")
		if v := r.view("good"); v.LastActive.After(time.Now()) || v.RenewedAt.After(time.Now()) ||
			v.NextAttempt.After(time.Now().Add(time.Hour)) {
			t.Errorf("times in the future were taken over: %+v", v)
		}
		_, err = load(true)
		wantErr(t, "Load of a store that goes away", err, conversation.ErrUnavailable)
	})
}

// TestConcurrently has everything happen at once; the race detector and the final state tell.
func TestConcurrently(t *testing.T) {
	t.Parallel()
	store := openStore(t, filepath.Join(t.TempDir(), "state.db"))
	cfg := testConfig()
	cfg.FlushInterval, cfg.SweepInterval = time.Millisecond, time.Millisecond
	r, err := conversation.NewRegistry(cfg, conversation.RegistryDeps{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()

	const ids, rounds = 8, 60
	id := func(i int) conversation.ID { return conversation.ID(fmt.Sprintf("c%d", i%ids)) }
	for i := range ids {
		if _, _, err := r.Register(ctx, conversation.Registration{ID: id(i), Source: conversation.SourceAdmin}); err != nil {
			t.Fatal(err)
		}
	}
	var wg sync.WaitGroup
	each := func(fn func(i int) error) {
		wg.Go(func() {
			for i := range rounds {
				if err := fn(i); err != nil {
					t.Errorf("%v", err)
				}
			}
		})
	}
	for range 2 {
		each(func(i int) error {
			_, err := r.Update(ctx, id(i), func(c *conversation.Conversation) error {
				c.Attempts++
				return nil
			})
			return err
		})
	}
	each(func(i int) error {
		_, _, err := r.Settle(ctx, "tools", strconv.Itoa(i), nil, time.Now())
		return err
	})
	each(func(i int) error {
		r.Seen(conversation.Sighting{ID: id(i), Server: "tools", Source: conversation.SourceURL})
		r.Seen(conversation.Sighting{ID: "extra" + id(i), Server: "tools", Source: conversation.SourceURL})
		g, _ := r.Generation("tools")
		r.Listed(conversation.Listing{ID: id(i), Server: "tools", Generation: g.Number, Began: time.Now(), Ended: time.Now(), Complete: true})
		r.SessionLost(id(i), "tools")
		return nil
	})
	each(func(i int) error {
		err := r.Remove(ctx, "extra"+id(i))
		if errors.Is(err, conversation.ErrNotFound) {
			return nil
		}
		return err
	})
	each(func(i int) error {
		r.Due(time.Now())
		r.Counts()
		r.OldestStale()
		r.Swapped("other")
		_, err := r.List(conversation.Query{Limit: 3})
		return errors.Join(err, r.Refresh(ctx, id(i)))
	})
	wg.Wait()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}

	total := 0
	for i := range ids {
		v, err := r.Get(id(i))
		if err != nil {
			t.Fatal(err)
		}
		stored, err := store.Get(t.Context(), id(i))
		if err != nil || stored.Revision != v.Revision || stored.Attempts != v.Attempts || stored.Servers["tools"].How != v.Servers["tools"].How {
			t.Errorf("store and memory differ: %+v, %+v, %v", stored, v.Conversation, err)
		}
		total += v.Attempts
	}
	if total != 2*rounds {
		t.Errorf("%d of %d updates are there", total, 2*rounds)
	}
	memory, _ := r.Generation("tools")
	if g, err := store.Generation(t.Context(), "tools"); err != nil || g.Number != memory.Number {
		t.Errorf("store has generation %d, %v; memory %d", g.Number, err, memory.Number)
	}
}
