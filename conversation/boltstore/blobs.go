package boltstore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// sweepLength is how many blobs are looked at in one transaction.
const sweepLength = 10_000

// Blobs are stored as the end of their life (8 bytes, big-endian, nanoseconds since 1970, 0 for good) and the value, under the bucket's name, a
// zero byte and the key.
const expiryLength = 8

func blobKey(bucket, key string) ([]byte, error) {
	if bucket == "" || bytes.IndexByte([]byte(bucket), 0) >= 0 {
		return nil, fmt.Errorf("storing: %q can't be the name of a bucket", bucket)
	}
	k := bucket + "\x00" + key
	return []byte(k), checkKey(k)
}

// expired tells whether a stored blob's time is over, or whether it is no blob.
func expired(v []byte, now time.Time) bool {
	if len(v) < expiryLength {
		return true
	}
	end := binary.BigEndian.Uint64(v)
	return end != 0 && int64(end) <= now.UnixNano()
}

// Blob implements conversation.Store.
func (s *Store) Blob(ctx context.Context, bucket, key string) (value []byte, err error) {
	k, err := blobKey(bucket, key)
	if err != nil {
		return nil, err
	}
	err = s.view(ctx, func(tx *bolt.Tx) error {
		v := tx.Bucket(bucketBlobs).Get(k)
		if v == nil || expired(v, s.now()) {
			return conversation.ErrNotFound
		}
		value = bytes.Clone(v[expiryLength:])
		return nil
	})
	return value, err
}

// PutBlob implements conversation.Store.
func (s *Store) PutBlob(ctx context.Context, bucket, key string, value []byte, ttl time.Duration) error {
	k, err := blobKey(bucket, key)
	if err != nil {
		return err
	}
	var end uint64
	if ttl > 0 {
		end = uint64(s.now().Add(ttl).UnixNano())
	}
	v := append(binary.BigEndian.AppendUint64(make([]byte, 0, expiryLength+len(value)), end), value...)
	return s.update(ctx, func(tx *bolt.Tx) error {
		return tx.Bucket(bucketBlobs).Put(k, v)
	})
}

// DeleteBlob implements conversation.Store.
func (s *Store) DeleteBlob(ctx context.Context, bucket, key string) error {
	k, err := blobKey(bucket, key)
	if err != nil {
		return err
	}
	return s.update(ctx, func(tx *bolt.Tx) error {
		return tx.Bucket(bucketBlobs).Delete(k)
	})
}

// sweep removes the blobs whose time is over. It runs on the writer, between commits. What fails is tried again by the next one.
func (s *Store) sweep() {
	now := s.now()
	for next := []byte{}; next != nil; {
		err := s.transact(func(tx *bolt.Tx) error {
			cursor := tx.Bucket(bucketBlobs).Cursor()
			k, v := cursor.Seek(next)
			var over [][]byte
			for n := 0; k != nil && n < sweepLength; n++ {
				if expired(v, now) {
					over = append(over, bytes.Clone(k))
				}
				k, v = cursor.Next()
			}
			next = bytes.Clone(k)
			if len(over) == 0 {
				return errNothing
			}
			for _, k := range over {
				if err := tx.Bucket(bucketBlobs).Delete(k); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil && err != errNothing { //nolint:errorlint // returned as it is
			return
		}
	}
}
