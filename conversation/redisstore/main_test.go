package redisstore

import (
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/storetest"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// server is a redis-server on an address of its own, with one process after the other.
type server struct {
	tb   testing.TB
	addr string
	dir  string
	args []string
	p    *proc.Process
}

// startServer starts a server that writes down each change.
func startServer(tb testing.TB, args ...string) *server {
	tb.Helper()
	s := &server{tb: tb, addr: proc.ReserveAddr(tb), dir: tb.TempDir(), args: args}
	s.start()
	return s
}

func (s *server) start() {
	s.tb.Helper()
	host, port, _ := strings.Cut(s.addr, ":")
	args := append([]string{"--bind", host, "--port", port, "--save", "", "--appendonly", "yes", "--dir", s.dir}, s.args...)
	s.p = proc.StartWith(s.tb, exec.Command(proc.Need(s.tb, "redis-server"), args...))
	proc.WaitListening(s.tb, s.addr)
}

func (s *server) url() string { return "redis://" + s.addr }

// raw returns a client that knows nothing of ours.
func (s *server) raw() *redis.Client {
	c := redis.NewClient(&redis.Options{Addr: s.addr, Protocol: 2})
	s.tb.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *server) open(tb testing.TB, prefix string, change ...func(*Options)) *Store {
	tb.Helper()
	o := DefaultOptions()
	o.URL, o.Prefix = s.url(), prefix
	for _, c := range change {
		c(&o)
	}
	store, err := Open(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Errorf("Close: %v", err)
		}
	})
	return store
}

func TestStore(t *testing.T) {
	s := startServer(t)
	raw := s.raw()
	var n atomic.Int64
	storetest.Run(t, func(t *testing.T) storetest.Backend {
		t.Helper()
		prefix := "test-" + strconv.FormatInt(n.Add(1), 10)
		return storetest.Backend{
			Open: func(t *testing.T) conversation.Store { t.Helper(); return s.open(t, prefix) },
			Advance: func(d time.Duration) { // what is left of each life is less by that
				keys, err := raw.Keys(t.Context(), "{"+prefix+"}:*").Result()
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range keys {
					if left := raw.PTTL(t.Context(), k).Val(); left > d {
						raw.PExpire(t.Context(), k, left-d)
					} else if left > 0 {
						raw.Del(t.Context(), k)
					}
				}
			},
		}
	})
}

func eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	proc.Eventually(tb, what, ok)
}
