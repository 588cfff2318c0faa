package boltstore

import (
	"bytes"
	"context"
	"errors"
	"iter"

	"github.com/go-json-experiment/json"
	bolt "go.etcd.io/bbolt"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// pageLength is how many records one read transaction of All takes: transactions must not stay open while the caller works, since writers may
// have to wait for them.
const pageLength = 1024

// Get implements conversation.Store.
func (s *Store) Get(ctx context.Context, id conversation.ID) (c conversation.Conversation, err error) {
	err = s.view(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketConversations).Get([]byte(id))
		if b == nil {
			return conversation.ErrNotFound
		}
		c, err = conversation.DecodeConversation(b)
		return err
	})
	return c, err
}

// record is a record as it is stored.
type record struct {
	key   string
	value []byte
}

func (r record) decode() (conversation.Conversation, error) {
	c, err := conversation.DecodeConversation(r.value)
	if err == nil && string(c.ID) != r.key {
		err = errors.New("stored record is of another conversation: it is damaged")
	}
	if err != nil {
		c = conversation.Conversation{ID: conversation.ID(r.key)}
	}
	return c, err
}

// All implements conversation.Store.
func (s *Store) All(ctx context.Context) iter.Seq2[conversation.Conversation, error] {
	return func(yield func(conversation.Conversation, error) bool) {
		var next []byte
		records := make([]record, 0, pageLength)
		for {
			records = records[:0]
			more := false
			err := s.view(ctx, func(tx *bolt.Tx) error {
				cursor := tx.Bucket(bucketConversations).Cursor()
				k, v := cursor.Seek(next)
				for ; k != nil && len(records) < pageLength; k, v = cursor.Next() {
					records = append(records, record{string(k), bytes.Clone(v)})
				}
				more = k != nil
				next = append(next[:0], k...)
				return nil
			})
			if err != nil {
				yield(conversation.Conversation{}, err)
				return
			}
			for c, err := range conversation.DecodeAll(records, record.decode) {
				if !yield(c, err) {
					return
				}
			}
			if !more {
				return
			}
		}
	}
}

// revision returns the revision of a stored record, 0 if there is none. A record that can't be read counts as none, so that a new registration
// replaces it: All reported it.
func revision(b *bolt.Bucket, id conversation.ID) uint64 {
	var record struct {
		Revision uint64 `json:"revision"`
	}
	if err := json.Unmarshal(b.Get([]byte(id)), &record); err != nil {
		return 0
	}
	return record.Revision
}

// Put implements conversation.Store.
func (s *Store) Put(ctx context.Context, c conversation.Conversation) (conversation.Conversation, error) {
	if err := checkKey(string(c.ID)); err != nil {
		return conversation.Conversation{}, err
	}
	before := c.Revision
	c.Revision++
	record, err := conversation.EncodeConversation(c)
	if err != nil {
		return conversation.Conversation{}, err
	}
	err = s.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketConversations)
		if revision(b, c.ID) != before {
			return conversation.ErrConflict
		}
		return b.Put([]byte(c.ID), record)
	})
	if err != nil {
		return conversation.Conversation{}, err
	}
	return c, nil
}

// Touch implements conversation.Store.
func (s *Store) Touch(ctx context.Context, touches []conversation.Touch) error {
	err := s.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketConversations)
		changed := false
		for _, t := range touches {
			v := b.Get([]byte(t.ID))
			if v == nil {
				continue
			}
			c, err := conversation.DecodeConversation(v)
			if err != nil {
				continue // reported when it was loaded
			}
			if !t.LastActive.After(c.LastActive) && !t.RenewedAt.After(c.RenewedAt) {
				continue
			}
			if t.LastActive.After(c.LastActive) {
				c.LastActive = t.LastActive
			}
			if t.RenewedAt.After(c.RenewedAt) {
				c.RenewedAt = t.RenewedAt
			}
			record, err := conversation.EncodeConversation(c)
			if err != nil {
				return err
			}
			if err := b.Put([]byte(t.ID), record); err != nil {
				return err
			}
			changed = true
		}
		if !changed {
			return errNothing
		}
		return nil
	})
	if errors.Is(err, errNothing) {
		return nil
	}
	return err
}

// Delete implements conversation.Store.
func (s *Store) Delete(ctx context.Context, id conversation.ID, expected uint64) error {
	return s.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketConversations)
		switch revision(b, id) {
		case 0:
			return conversation.ErrNotFound
		case expected:
			return b.Delete([]byte(id))
		default:
			return conversation.ErrConflict
		}
	})
}

// Generation implements conversation.Store.
func (s *Store) Generation(ctx context.Context, server string) (g conversation.Generation, err error) {
	err = s.view(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketGenerations).Get([]byte(server))
		if b == nil {
			return conversation.ErrNotFound
		}
		g, err = conversation.DecodeGeneration(b)
		return err
	})
	return g, err
}

// PutGeneration implements conversation.Store.
func (s *Store) PutGeneration(ctx context.Context, g conversation.Generation) error {
	if err := checkKey(g.Server); err != nil {
		return err
	}
	record, err := conversation.EncodeGeneration(g)
	if err != nil {
		return err
	}
	return s.update(ctx, func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketGenerations)
		var stored conversation.Generation
		if v := b.Get([]byte(g.Server)); v != nil {
			var err error
			if stored, err = conversation.DecodeGeneration(v); err != nil {
				return err
			}
		}
		if g.Number != stored.Number+1 {
			return conversation.ErrConflict
		}
		return b.Put([]byte(g.Server), record)
	})
}

// checkKey refuses what bbolt can't store, before a commit would fail for all that share it.
func checkKey(key string) error {
	if key == "" || len(key) > bolt.MaxKeySize {
		return errors.New("storing: the key is empty or too long")
	}
	return nil
}
