package agents

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"log/slog"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const (
	keyBucket = "agent-keys"
	// sealPurpose names what is sealed, so that nothing else that the keys sealed
	// can be taken for it.
	sealPurpose = "agent server key"
)

// Sealer seals what is stored. *proxy.Keyring is one.
type Sealer interface {
	Seal(purpose string, plaintext, additional []byte) ([]byte, error)
	Open(purpose string, sealed, additional []byte) ([]byte, error)
}

// Blobs is the part of a store that keys are kept in.
type Blobs interface {
	Blob(ctx context.Context, bucket, key string) ([]byte, error)
	PutBlob(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error
	DeleteBlob(ctx context.Context, bucket, key string) error
}

// Keeper keeps the keys of agent servers in a store, sealed. A nil one keeps
// nothing.
type Keeper struct {
	Blobs  Blobs
	Sealer Sealer
	// TTL is how long a key is kept that nobody uses; 0 is for good.
	TTL time.Duration
}

func blobKey(at conversation.Instance) string {
	sum := sha256.Sum256([]byte(at.Name()))
	return hex.EncodeToString(sum[:])
}

// due tells whether a key that was stored then is to be stored again.
func (k *Keeper) due(stored time.Time) bool {
	return k != nil && (stored.IsZero() || k.TTL > 0 && time.Since(stored) > k.TTL/2)
}

func (k *Keeper) store(ctx context.Context, log *slog.Logger, at conversation.Instance, key string) {
	if k == nil || key == "" {
		return
	}
	sealed, err := k.Sealer.Seal(sealPurpose, []byte(key), []byte(at.Name()))
	if err == nil {
		err = k.Blobs.PutBlob(ctx, keyBucket, blobKey(at), sealed, k.TTL)
	}
	if err != nil && ctx.Err() == nil {
		log.Warn("key of an agent server not stored: after a restart it is unknown until a request brings it", "agent_server", at.Name(), "err", err)
	}
}

// load returns the key of an agent server, "" if there is none.
func (k *Keeper) load(ctx context.Context, log *slog.Logger, at conversation.Instance) string {
	if k == nil {
		return ""
	}
	sealed, err := k.Blobs.Blob(ctx, keyBucket, blobKey(at))
	if errors.Is(err, conversation.ErrNotFound) {
		return ""
	}
	var key []byte
	if err == nil {
		key, err = k.Sealer.Open(sealPurpose, sealed, []byte(at.Name()))
	}
	if err != nil {
		log.Warn("stored key of an agent server can't be read: it is unknown until a request brings it", "agent_server", at.Name(), "err", err)
		return ""
	}
	return string(key)
}

func (k *Keeper) forget(ctx context.Context, log *slog.Logger, at conversation.Instance) {
	if k == nil {
		return
	}
	if err := k.Blobs.DeleteBlob(ctx, keyBucket, blobKey(at)); err != nil && ctx.Err() == nil {
		log.Warn("key of an agent server not removed from the store", "agent_server", at.Name(), "err", err)
	}
}
