package proxy

import (
	"context"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// BlobStore keeps small values: what changed about sessions since their ids were
// sealed. Blob returns conversation.ErrNotFound for what isn't there.
type BlobStore interface {
	Blob(ctx context.Context, bucket, key string) ([]byte, error)
	PutBlob(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error
	DeleteBlob(ctx context.Context, bucket, key string) error
}

var _ BlobStore = conversation.Store(nil)

// Buckets of the store.
const (
	bucketSessions = "sessions" // overrides, by session key
	bucketSpills   = "spills"   // what is too large for a sealed id, by session key
)

// memoryBlobs is the store of a proxy that was given none.
type memoryBlobs struct {
	mu     sync.Mutex
	values map[[2]string]memoryBlob
}

type memoryBlob struct {
	value   []byte
	expires time.Time
}

func newMemoryBlobs() *memoryBlobs { return &memoryBlobs{values: make(map[[2]string]memoryBlob)} }

func (b *memoryBlobs) Blob(_ context.Context, bucket, key string) ([]byte, error) {
	b.mu.Lock()
	defer b.mu.Unlock()

	v, ok := b.values[[2]string{bucket, key}]
	if !ok || time.Now().After(v.expires) {
		return nil, conversation.ErrNotFound
	}

	return v.value, nil
}

func (b *memoryBlobs) PutBlob(_ context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()

	b.values[[2]string{bucket, key}] = memoryBlob{value, time.Now().Add(ttl)}

	return nil
}

func (b *memoryBlobs) DeleteBlob(_ context.Context, bucket, key string) error {
	b.mu.Lock()
	defer b.mu.Unlock()

	delete(b.values, [2]string{bucket, key})

	return nil
}

// prune forgets what has expired.
func (b *memoryBlobs) prune(now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()

	for k, v := range b.values {
		if now.After(v.expires) {
			delete(b.values, k)
		}
	}
}
