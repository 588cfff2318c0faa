// Package boltstore keeps conversations in one file, by means of bbolt: the store of a single sidecar.
//
// A write returns when it is on disk. Writes that come while another is being synced share the next sync, so that many writers at once are
// much faster than one after the other. The file belongs to one process at a time.
package boltstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

//nolint:gochecknoglobals // constants, but for their type
var (
	bucketConversations = []byte("conversations")
	bucketGenerations   = []byte("generations")
	bucketBlobs         = []byte("blobs")
	bucketMeta          = []byte("meta")
	keyFormat           = []byte("format")
)

// maxCommit bounds how many writes share one commit.
const maxCommit = 1024

var (
	_ conversation.Store = (*Store)(nil)
	_ conversation.Sizer = (*Store)(nil)
)

// Store is a conversation.Store in one file.
type Store struct {
	db   *bolt.DB
	path string
	now  func() time.Time

	writes  chan *write
	closing chan struct{} // closed when Close begins
	done    sync.WaitGroup
	close   func() error
	broken  error // why nothing can be written any more; bbolt may hold its locks for good then. The writer's.
}

// write is one change, made by the writer. fn must leave everything as it is when it returns an error.
type write struct {
	fn     func(tx *bolt.Tx) error
	err    error
	result chan struct{} // closed when err is final
}

func newStore(db *bolt.DB, path string, o Options) *Store {
	s := &Store{db: db, path: path, now: o.Now, writes: make(chan *write), closing: make(chan struct{})}
	s.close = sync.OnceValue(func() error {
		close(s.closing)
		s.done.Wait()
		if s.broken == nil { // or else closing would wait for the lock
			return s.db.Close()
		}
		return nil
	})
	s.done.Go(func() { s.writer(o.SweepInterval) })
	return s
}

// Close finishes the writes that were accepted and lets go of the file.
func (s *Store) Close() error {
	if err := s.close(); err != nil {
		return fmt.Errorf("closing the state %q: %w", s.path, err)
	}
	return nil
}

// Size returns the size of the file.
func (s *Store) Size() (int64, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return 0, fmt.Errorf("measuring the state: %w", err)
	}
	return info.Size(), nil
}

// update has the writer make a change and waits until it is on disk.
func (s *Store) update(ctx context.Context, fn func(tx *bolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	w := &write{fn: fn, result: make(chan struct{})}
	select {
	case s.writes <- w:
	case <-s.closing:
		return conversation.ErrClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case <-w.result:
		return w.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// view reads.
func (s *Store) view(ctx context.Context, fn func(tx *bolt.Tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	defer guard(s.path, &err)()
	err = s.db.View(fn)
	if errors.Is(err, berrors.ErrDatabaseNotOpen) {
		return conversation.ErrClosed
	}
	return err
}

// writer makes the changes: all that wait in one commit.
func (s *Store) writer(sweepInterval time.Duration) {
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	var batch []*write
	for {
		select {
		case <-s.closing:
			return
		case <-sweep.C:
			s.sweep()
			continue
		case w := <-s.writes:
			batch = append(batch[:0], w)
		}
		for more := true; more && len(batch) < maxCommit; {
			select {
			case w := <-s.writes:
				batch = append(batch, w)
			default:
				more = false
			}
		}
		s.commit(batch)
		clear(batch)
	}
}

// errNothing rolls a commit back in which no change was made.
var errNothing = errors.New("nothing to write")

func (s *Store) commit(batch []*write) {
	err := s.transact(func(tx *bolt.Tx) error {
		changes := 0
		for _, w := range batch {
			if w.err = w.fn(tx); w.err == nil {
				changes++
			}
		}
		if changes == 0 {
			return errNothing
		}
		return nil
	})
	for _, w := range batch {
		if err != nil && !errors.Is(err, errNothing) && w.err == nil {
			w.err = fmt.Errorf("%w: writing %q: %w", conversation.ErrUnavailable, s.path, err)
		}
		close(w.result)
	}
}

// transact runs fn in a write transaction, on the writer.
func (s *Store) transact(fn func(tx *bolt.Tx) error) (err error) {
	if s.broken != nil {
		return s.broken
	}
	defer func() {
		if errors.Is(err, ErrCorrupt) {
			s.broken = err
		}
	}()
	defer guard(s.path, &err)()
	return s.db.Update(fn)
}
