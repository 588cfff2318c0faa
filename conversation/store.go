package conversation

import (
	"context"
	"iter"
	"time"
)

// Store keeps conversations, generations and blobs. Methods return ErrNotFound, ErrConflict, ErrClosed and ErrUnavailable, wrapped or not, and
// the error of a context that ended; in that case, as with ErrUnavailable, a write may have happened. Implementations pass storetest.Run.
type Store interface {
	// Get returns one conversation, or ErrNotFound.
	Get(ctx context.Context, id ID) (Conversation, error)
	// All yields every conversation, ordered by id. The loop may write to the store: a conversation that is put or deleted meanwhile is yielded
	// or not. An error that comes with an ID is about that record alone, and the iteration goes on; any other ends it.
	All(ctx context.Context) iter.Seq2[Conversation, error]
	// Put writes c if the stored revision is c.Revision (0 when there is none) and returns it with the new revision; otherwise ErrConflict.
	Put(ctx context.Context, c Conversation) (Conversation, error)
	// Touch moves LastActive and RenewedAt of many conversations forward, never back, in few writes. It leaves the revisions as they are and
	// ignores conversations that aren't there.
	Touch(ctx context.Context, touches []Touch) error
	// Delete removes a conversation if its revision is still the given one: ErrConflict otherwise, ErrNotFound if there is none.
	Delete(ctx context.Context, id ID, revision uint64) error

	// Generation returns the newest generation of a server, or ErrNotFound.
	Generation(ctx context.Context, server string) (Generation, error)
	// PutGeneration replaces the newest generation of g.Server if g.Number is the next one (1 when there is none); otherwise ErrConflict.
	PutGeneration(ctx context.Context, g Generation) error

	// Blob returns a value that PutBlob stored, or ErrNotFound, also once its time is over. The bucket is a short constant name.
	Blob(ctx context.Context, bucket, key string) ([]byte, error)
	// PutBlob stores a value for ttl, for good if ttl is 0.
	PutBlob(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error
	// DeleteBlob removes a value; there need not be one.
	DeleteBlob(ctx context.Context, bucket, key string) error

	// Close ends all use of the store. Closing twice is harmless.
	Close() error
}

// Touch is a sign of life of a conversation. Zero times change nothing.
type Touch struct {
	ID         ID
	LastActive time.Time
	RenewedAt  time.Time
}

// Sizer is implemented by stores that can tell how much space they take.
type Sizer interface {
	// Size returns the size in bytes.
	Size() (int64, error)
}
