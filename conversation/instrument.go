package conversation

import (
	"context"
	"errors"
	"iter"
	"time"
)

// Store operations, as a label value.
const (
	opGet           = "get"
	opAll           = "all"
	opPut           = "put"
	opTouch         = "touch"
	opDelete        = "delete"
	opGeneration    = "generation"
	opPutGeneration = "put_generation"
	opBlob          = "blob"
	opPutBlob       = "put_blob"
	opDeleteBlob    = "delete_blob"
)

func storeOps() []string {
	return []string{opGet, opAll, opPut, opTouch, opDelete, opGeneration, opPutGeneration, opBlob, opPutBlob, opDeleteBlob}
}

// Instrument returns the store with every operation counted and timed, and its size in the metrics if it is a Sizer.
func Instrument(s Store, m *Metrics) Store {
	if sizer, ok := s.(Sizer); ok {
		m.sizer.Store(&sizer)
	}
	return &instrumented{store: s, metrics: m}
}

type instrumented struct {
	store   Store
	metrics *Metrics
}

func (i *instrumented) done(ctx context.Context, op string, began time.Time, err error) {
	i.metrics.operations.WithLabelValues(op).Inc()
	i.metrics.durations.WithLabelValues(op).Observe(time.Since(began).Seconds())
	if err != nil && !errors.Is(err, ErrNotFound) && !errors.Is(err, ErrConflict) && ctx.Err() == nil {
		i.metrics.failures.WithLabelValues(op).Inc()
	}
}

// Get implements Store.
func (i *instrumented) Get(ctx context.Context, id ID) (c Conversation, err error) {
	defer func(began time.Time) { i.done(ctx, opGet, began, err) }(time.Now())
	return i.store.Get(ctx, id)
}

// All implements Store. It is one operation, which takes as long as the loop.
func (i *instrumented) All(ctx context.Context) iter.Seq2[Conversation, error] {
	return func(yield func(Conversation, error) bool) {
		began := time.Now()
		var failed error
		for c, err := range i.store.All(ctx) {
			if err != nil {
				failed = err
			}
			if !yield(c, err) {
				break
			}
		}
		i.done(ctx, opAll, began, failed)
	}
}

// Put implements Store.
func (i *instrumented) Put(ctx context.Context, c Conversation) (stored Conversation, err error) {
	defer func(began time.Time) { i.done(ctx, opPut, began, err) }(time.Now())
	return i.store.Put(ctx, c)
}

// Touch implements Store.
func (i *instrumented) Touch(ctx context.Context, touches []Touch) (err error) {
	defer func(began time.Time) { i.done(ctx, opTouch, began, err) }(time.Now())
	return i.store.Touch(ctx, touches)
}

// Delete implements Store.
func (i *instrumented) Delete(ctx context.Context, id ID, revision uint64) (err error) {
	defer func(began time.Time) { i.done(ctx, opDelete, began, err) }(time.Now())
	return i.store.Delete(ctx, id, revision)
}

// Generation implements Store.
func (i *instrumented) Generation(ctx context.Context, server string) (g Generation, err error) {
	defer func(began time.Time) { i.done(ctx, opGeneration, began, err) }(time.Now())
	return i.store.Generation(ctx, server)
}

// PutGeneration implements Store.
func (i *instrumented) PutGeneration(ctx context.Context, g Generation) (err error) {
	defer func(began time.Time) { i.done(ctx, opPutGeneration, began, err) }(time.Now())
	return i.store.PutGeneration(ctx, g)
}

// Blob implements Store.
func (i *instrumented) Blob(ctx context.Context, bucket, key string) (value []byte, err error) {
	defer func(began time.Time) { i.done(ctx, opBlob, began, err) }(time.Now())
	return i.store.Blob(ctx, bucket, key)
}

// PutBlob implements Store.
func (i *instrumented) PutBlob(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) (err error) {
	defer func(began time.Time) { i.done(ctx, opPutBlob, began, err) }(time.Now())
	return i.store.PutBlob(ctx, bucket, key, value, ttl)
}

// DeleteBlob implements Store.
func (i *instrumented) DeleteBlob(ctx context.Context, bucket, key string) (err error) {
	defer func(began time.Time) { i.done(ctx, opDeleteBlob, began, err) }(time.Now())
	return i.store.DeleteBlob(ctx, bucket, key)
}

// Close implements Store.
func (i *instrumented) Close() error { return i.store.Close() }
