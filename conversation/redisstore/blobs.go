package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// maxPending bounds how many blobs wait for a server that is away.
const maxPending = 20_000

// blob is a value that waits to be written.
type blob struct {
	value   []byte
	deleted bool
	ends    time.Time // zero is for good
}

func (s *Store) blobKey(bucket, key string) (string, error) {
	if bucket == "" || strings.ContainsRune(bucket, ':') {
		return "", fmt.Errorf("storing: %q can't be the name of a bucket", bucket)
	}
	return s.key("blob", bucket+":"+key), nil
}

// Blob implements conversation.Store. What waits to be written is known.
func (s *Store) Blob(ctx context.Context, bucket, key string) ([]byte, error) {
	k, err := s.blobKey(bucket, key)
	if err != nil {
		return nil, err
	}
	if b, ok := s.waiting(k); ok {
		if b.deleted || !b.ends.IsZero() && !time.Now().Before(b.ends) {
			return nil, conversation.ErrNotFound
		}
		return bytes.Clone(b.value), nil
	}
	return s.get(ctx, k)
}

// PutBlob implements conversation.Store. While the server is away the value waits in memory, and it is no error.
func (s *Store) PutBlob(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	k, err := s.blobKey(bucket, key)
	if err != nil {
		return err
	}
	b := blob{value: bytes.Clone(value)}
	if ttl > 0 {
		b.ends = time.Now().Add(ttl)
	}
	return s.writeBlob(ctx, k, b)
}

// DeleteBlob implements conversation.Store. While the server is away it is done later, and it is no error.
func (s *Store) DeleteBlob(ctx context.Context, bucket, key string) error {
	k, err := s.blobKey(bucket, key)
	if err != nil {
		return err
	}
	return s.writeBlob(ctx, k, blob{deleted: true})
}

func (s *Store) writeBlob(ctx context.Context, key string, b blob) error {
	if s.await(key, b, true) {
		return nil
	}
	err := s.use(ctx, func(ctx context.Context) error { return s.sendBlob(ctx, key, b) })
	if errors.Is(err, conversation.ErrUnavailable) && s.await(key, b, false) {
		return nil
	}
	return err
}

// await lets a blob wait for the server, if that is away; in any case where an older one of the same key waits, so that this isn't written
// last.
func (s *Store) await(key string, b blob, only bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, ok := s.pending[key]; !ok && (only || s.closed || s.away == nil || len(s.pending) >= maxPending) {
		return false
	}
	s.pending[key] = b
	return true
}

func (s *Store) sendBlob(ctx context.Context, key string, b blob) error {
	switch {
	case b.deleted:
		return s.client.Del(ctx, key).Err()
	case b.ends.IsZero():
		return s.client.Set(ctx, key, b.value, 0).Err()
	}
	ttl := time.Until(b.ends)
	if ttl < time.Millisecond {
		return s.client.Del(ctx, key).Err()
	}
	return s.client.Set(ctx, key, b.value, ttl).Err()
}

func (s *Store) waiting(key string) (blob, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.pending[key]
	return b, ok
}

// deliver writes the blobs that waited for the server, until none does.
func (s *Store) deliver(ctx context.Context) {
	for {
		s.mu.Lock()
		pending := maps.Clone(s.pending)
		s.mu.Unlock()
		if len(pending) == 0 {
			return
		}
		for k, b := range pending {
			if err := s.use(ctx, func(ctx context.Context) error { return s.sendBlob(ctx, k, b) }); err != nil {
				return // it is away again, or we are closed
			}
			s.mu.Lock()
			if now := s.pending[k]; now.ends.Equal(b.ends) && now.deleted == b.deleted && bytes.Equal(now.value, b.value) {
				delete(s.pending, k)
			}
			s.mu.Unlock()
		}
	}
}
