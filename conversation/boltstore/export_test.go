package boltstore

import (
	"testing"

	bolt "go.etcd.io/bbolt"
)

// countBlobs returns how many blobs are in the file, expired ones included.
func (s *Store) countBlobs(t *testing.T) (n int) {
	t.Helper()
	if err := s.view(t.Context(), func(tx *bolt.Tx) error {
		n = tx.Bucket(bucketBlobs).Stats().KeyN
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return n
}

// spoil replaces a stored record.
func (s *Store) spoil(t *testing.T, key string, value []byte) {
	t.Helper()
	if err := s.update(t.Context(), func(tx *bolt.Tx) error {
		return tx.Bucket(bucketConversations).Put([]byte(key), value)
	}); err != nil {
		t.Fatal(err)
	}
}
