package conversation_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// groupStore is the part of a shared store that groups use.
type groupStore struct {
	conversation.SharedStore

	mu          sync.Mutex
	away        bool
	incarnation int
	replicas    map[string]conversation.Replica
	leases      map[string]time.Time
	claims      map[conversation.ID]string
	groups      []*conversation.Group
}

func (s *groupStore) use() error {
	if s.away {
		return errAway
	}
	maps.DeleteFunc(s.replicas, func(id string, _ conversation.Replica) bool { return !time.Now().Before(s.leases[id]) })
	return nil
}

func (s *groupStore) Announce(_ context.Context, r conversation.Replica, lease time.Duration) ([]conversation.Replica, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.use(); err != nil {
		return nil, "", err
	}
	s.replicas[r.ID], s.leases[r.ID] = r, time.Now().Add(lease)
	return slices.Collect(maps.Values(s.replicas)), fmt.Sprint("incarnation ", s.incarnation), nil
}

func (s *groupStore) Leave(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.replicas, id)
	return s.use()
}

func (s *groupStore) Tell(_ context.Context, topic string, body []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.use(); err != nil {
		return err
	}
	for _, g := range s.groups {
		g.Apply(conversation.Change{Message: &conversation.Message{Topic: topic, Body: body}})
	}
	return nil
}

func (s *groupStore) Claim(_ context.Context, id conversation.ID, replica string, _ time.Duration) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.use(); err != nil {
		return false, err
	}
	if holder := s.claims[id]; holder != "" && holder != replica {
		return false, nil
	}
	s.claims[id] = replica
	return true, nil
}

func (s *groupStore) Unclaim(_ context.Context, id conversation.ID, _ string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.claims, id)
	return s.use()
}

func (s *groupStore) set(fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fn()
}

// member is a replica in a group, in a bubble.
type member struct {
	*conversation.Group

	reg  *prometheus.Registry
	lost int
	end  context.CancelFunc
}

func newGroup(t *testing.T, n int) (*groupStore, []*member) {
	t.Helper()
	s := &groupStore{
		replicas: map[string]conversation.Replica{}, leases: map[string]time.Time{}, claims: map[conversation.ID]string{},
	}
	var all []*member
	for range n {
		m := &member{reg: prometheus.NewRegistry()}
		cfg := conversation.DefaultGroupConfig()
		cfg.Servers = []string{"tools"}
		var err error
		m.Group, err = conversation.NewGroup(cfg, conversation.GroupDeps{
			Store: s, Metrics: conversation.NewMetrics(m.reg), OnLost: func() { m.lost++ },
		})
		if err != nil {
			t.Fatal(err)
		}
		s.set(func() { s.groups = append(s.groups, m.Group) })
		all = append(all, m)
		ctx, cancel := context.WithCancel(t.Context())
		m.end = cancel
		go func() { _ = m.Run(ctx) }()
		m.See("tools", "one", true)
		m.SetReady(true)
	}
	synctest.Wait()
	return s, all
}

func wantAgreed(t *testing.T, when string, all []*member, want string) {
	t.Helper()
	synctest.Wait()
	for i, m := range all {
		if hash, ok := m.Agreed("tools"); ok != (want != "") || hash != want {
			t.Errorf("%s: replica %d says %q, %v; want %q", when, i, hash, ok, want)
		}
	}
}

func TestGroupAgrees(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, all := newGroup(t, 3)
		wantAgreed(t, "at the beginning", all, "one")
		all[0].See("tools", "", true)
		wantAgreed(t, "while one is away", all, "")
		all[0].See("tools", "two", true)
		wantAgreed(t, "while one is new", all, "")
		all[1].See("tools", "two", true)
		began := float64(time.Now().Unix())
		time.Sleep(time.Minute)
		wantAgreed(t, "while two are new", all, "")
		for _, m := range all {
			if since := gauge(t, m.reg, "mcp_sidecar_group_mixed_since_timestamp_seconds"); since < began-1 || since > began+1 {
				t.Errorf("mixed since %v, want %v", since, began)
			}
			if n := gauge(t, m.reg, "mcp_sidecar_group_replicas"); n != 3 {
				t.Errorf("%v replicas", n)
			}
		}
		all[2].See("tools", "two", true)
		wantAgreed(t, "when all are new", all, "two")
		time.Sleep(time.Second)
		if since := gauge(t, all[0].reg, "mcp_sidecar_group_mixed_since_timestamp_seconds"); since != 0 {
			t.Errorf("mixed since %v", since)
		}

		all[0].See("tools", "three", true)
		all[0].SetReady(false)
		wantAgreed(t, "when one that isn't ready has others", all, "two")
	})
}

// TestGroupWaitsForNobodyForEver: a replica that died, or whose backend doesn't come back, is left out after a while.
func TestGroupWaitsForNobodyForEver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, all := newGroup(t, 3)
		all[2].See("tools", "", true)
		time.Sleep(59 * time.Second)
		wantAgreed(t, "while one is away", all, "")
		time.Sleep(5 * time.Second)
		wantAgreed(t, "after a minute", all, "one")
		all[2].See("tools", "two", true)
		wantAgreed(t, "when it is back", all, "")

		all[2].end() // says goodbye
		wantAgreed(t, "when it has left", all[:2], "one")

		all[1].See("tools", "two", true)
		wantAgreed(t, "when the other is new", all[:2], "")
		s.set(func() { s.leases[all[1].ID()] = time.Now() }) // as if it were dead
		s.set(func() { s.groups = s.groups[:1] })
		all[1].end()
		time.Sleep(10 * time.Second)
		wantAgreed(t, "when its lease has ended", all[:1], "one")
	})
}

func TestGroupThatCannotSee(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, all := newGroup(t, 2)
		for _, m := range all {
			m.See("tools", "", false)
		}
		synctest.Wait()
		for _, m := range all {
			if hash, ok := m.Agreed("tools"); hash != "" || !ok {
				t.Errorf("it says %q, %v", hash, ok)
			}
		}
		all[0].See("tools", "one", true)
		wantAgreed(t, "when one can see", all, "one")
	})
}

func TestGroupWithoutStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, all := newGroup(t, 3)
		s.set(func() { s.away = true })
		time.Sleep(time.Minute)
		wantAgreed(t, "by what was known last", all, "one")
		all[0].See("tools", "two", true)
		wantAgreed(t, "with what one sees itself", all[:1], "")

		const id = "c0ffee"
		claimed := 0
		for _, m := range all {
			if m.Claim(t.Context(), id) {
				claimed++
			}
		}
		if claimed != 1 {
			t.Errorf("%d replicas refresh a conversation when nobody can tell", claimed)
		}
		s.set(func() { s.away = false; s.incarnation++ })
		all[0].See("tools", "one", true)
		time.Sleep(5 * time.Second)
		wantAgreed(t, "when the store is back", all, "one")
		for i, m := range all {
			if m.lost != 1 {
				t.Errorf("replica %d was told %d times that data are lost", i, m.lost)
			}
		}
		s.set(func() { s.away = true })
		for _, m := range all {
			if m.Claim(t.Context(), id) {
				t.Error("a conversation is refreshed while the store may come back")
			}
		}
	})
}

func TestClaims(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, all := newGroup(t, 2)
		if !all[0].Claim(t.Context(), "a") || all[1].Claim(t.Context(), "a") {
			t.Error("a claim isn't one replica's")
		}
		all[0].Unclaim(t.Context(), "a")
		if !all[1].Claim(t.Context(), "a") {
			t.Error("a claim that was given back can't be had")
		}
	})
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name && len(f.GetMetric()) == 1 {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no %s", name)
	return 0
}
