// Package redisstore keeps conversations in Redis or Valkey: the store of several replicas.
//
// Each record is one key, written by scripts that compare revisions. All keys begin with the prefix in braces, so that they are in one slot
// of a cluster. What is written is published on one channel; that channel may lose messages, and its readers are told when it may have.
//
// A server that doesn't answer is away: every operation then fails at once with conversation.ErrUnavailable, until the server answers again,
// so that nobody who only asks by the way has to wait for it. Blobs are written later.
package redisstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// poolSize is how many connections there are at most: enough for what the registry writes at once.
const poolSize = 64

var _ conversation.SharedStore = (*Store)(nil)

// ErrRefused is wrapped by Open when the server doesn't let us in: waiting won't help.
var ErrRefused = errors.New("refused")

// Store is a conversation.SharedStore in Redis.
type Store struct {
	client  redis.UniversalClient
	o       Options
	log     *slog.Logger
	scripts scripts
	origin  string // tells our own messages from those of others

	mu      sync.Mutex
	closed  bool
	away    error // why the server is away, nil while it is there
	ops     sync.WaitGroup
	pending map[string]blob // by key; they wait for the server

	lost   chan struct{} // tells the prober that the server went away
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// Open makes a store. A server that can't be reached is no error: it is away until it answers. Errors wrap ErrRefused where the server
// answered and doesn't accept us.
func Open(ctx context.Context, o Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("opening the Redis store: %w", err)
	}
	c, err := o.client()
	if err == nil {
		_, err = o.tls()
	}
	if err != nil {
		return nil, fmt.Errorf("opening the Redis store: %w", err)
	}
	redis.SetLogger(&logging.VoidLogger{}) // it writes to standard error what we return or log ourselves
	s := &Store{
		client: redis.NewUniversalClient(c), o: o, log: o.Logger, scripts: newScripts(), origin: rand.Text(),
		pending: map[string]blob{}, lost: make(chan struct{}, 1),
	}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	if o.OnUp == nil {
		s.o.OnUp = func(bool) {}
	}
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	s.cancel = cancel
	s.done.Go(func() { s.probe(run) })
	err = s.use(ctx, func(ctx context.Context) error { return s.client.Ping(ctx).Err() })
	if err != nil && (refused(err) || ctx.Err() != nil) {
		return nil, errors.Join(fmt.Errorf("opening the Redis store: %w", err), s.Close())
	}
	return s, nil
}

// key returns the name of a key.
func (s *Store) key(kind, name string) string { return "{" + s.o.Prefix + "}:" + kind + ":" + name }

// Names of keys.
func (s *Store) record(id conversation.ID) string { return s.key("conversation", string(id)) }
func (s *Store) index() string                    { return s.key("index", "conversations") }
func (s *Store) channel() string                  { return s.key("channel", "changes") }

// Close waits for the operations that are under way and ends the connections.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil
	}
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.done.Wait()
	s.ops.Wait()
	if err := s.client.Close(); err != nil {
		return fmt.Errorf("closing the Redis store: %w", err)
	}
	return nil
}

// begin notes an operation, unless the store is closed or its server away.
func (s *Store) begin() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.closed:
		return conversation.ErrClosed
	case s.away != nil:
		return fmt.Errorf("%w: %w", conversation.ErrUnavailable, s.away)
	}
	s.ops.Add(1)
	return nil
}

// use runs one operation and says what its error means.
func (s *Store) use(ctx context.Context, op func(context.Context) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := s.begin(); err != nil {
		return err
	}
	defer s.ops.Done()
	err := op(ctx)
	switch {
	case err == nil, errors.Is(err, conversation.ErrConflict), errors.Is(err, conversation.ErrNotFound):
		return err
	case errors.Is(err, redis.Nil):
		return conversation.ErrNotFound
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case refused(err):
		s.leave(err)
		return fmt.Errorf("%w: the Redis server %w: %w", conversation.ErrUnavailable, ErrRefused, err)
	case answered(err) && !starting(err), errors.Is(err, redis.ErrPoolTimeout):
		return fmt.Errorf("%w: %w", conversation.ErrUnavailable, err)
	default:
		s.leave(err)
		return fmt.Errorf("%w: %w", conversation.ErrUnavailable, err)
	}
}

// answered tells whether an error is an answer of the server.
func answered(err error) bool {
	var e redis.Error
	return errors.As(err, &e)
}

// refused tells whether the server doesn't accept us.
func refused(err error) bool {
	return answered(err) && hasCode(err, "NOAUTH", "WRONGPASS", "NOPERM") ||
		answered(err) && strings.Contains(err.Error(), "without any password configured")
}

// starting tells whether the server can't work yet.
func starting(err error) bool {
	return hasCode(err, "LOADING", "MASTERDOWN", "CLUSTERDOWN", "READONLY")
}

func hasCode(err error, codes ...string) bool {
	for _, code := range codes {
		if redis.HasErrorPrefix(err, code) {
			return true
		}
	}
	return false
}

// leave notes that the server is away.
func (s *Store) leave(err error) {
	s.mu.Lock()
	first := s.away == nil && !s.closed
	if first {
		s.away = err
	}
	s.mu.Unlock()
	if !first {
		return
	}
	s.o.OnUp(false)
	s.log.Error("redis is away: going on with what is known, writing later", "err", err)
	select {
	case s.lost <- struct{}{}:
	default:
	}
}

// probe waits for a server that is away to answer again.
func (s *Store) probe(ctx context.Context) {
	tick := time.NewTicker(s.o.ProbeInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.lost:
		}
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if s.answers(ctx) {
				break
			}
		}
		s.back()
		s.deliver(ctx)
	}
}

// answers asks a server that is away.
func (s *Store) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	err := s.client.Exists(ctx, s.index()).Err() // PING is answered by a server that can't do anything else yet
	return err == nil
}

// back notes that the server is there again.
func (s *Store) back() {
	s.mu.Lock()
	s.away = nil
	s.mu.Unlock()
	s.o.OnUp(true)
	s.log.Info("redis is back")
}
