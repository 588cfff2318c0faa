package redisstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const (
	// pageLength is how many records are read at once: the server does nothing else meanwhile.
	pageLength = 500
	// touchLength is how many signs of life are written at once.
	touchLength = 500
	// spare is how much longer than its life a conversation is kept: the registry ends it in time and says so.
	spare = time.Hour
)

var errKey = errors.New("storing: the key is empty")

// head is the first line of a record.
type head struct {
	revision        uint64
	life            time.Duration
	active, renewed time.Time
}

// stampLength is the number of digits of a moment.
const stampLength = 19

// stamp writes a moment so that it compares as text. What lies before 1970 is none.
func stamp(t time.Time) string {
	if t.IsZero() || t.UnixNano() < 0 {
		return "0000000000000000000"
	}
	return fmt.Sprintf("%0*d", stampLength, t.UnixNano())
}

func parseStamp(b []byte) (time.Time, error) {
	n, err := strconv.ParseInt(string(b), 10, 64)
	if err != nil || n < 0 || len(b) != stampLength {
		return time.Time{}, errRecord
	}
	if n == 0 {
		return time.Time{}, nil
	}
	return time.Unix(0, n).UTC(), nil
}

var errRecord = errors.New("stored record has no header: it is damaged")

// parseHead reads the first line of a record and returns what follows it.
func parseHead(v []byte) (h head, rest []byte, err error) {
	line, rest, ok := bytes.Cut(v, []byte("\n"))
	parts := bytes.Split(line, []byte(" "))
	if !ok || len(parts) != 4 {
		return head{}, nil, errRecord
	}
	var errs [4]error
	var life int64
	h.revision, errs[0] = strconv.ParseUint(string(parts[0]), 10, 64)
	life, errs[1] = strconv.ParseInt(string(parts[1]), 10, 64)
	h.active, errs[2] = parseStamp(parts[2])
	h.renewed, errs[3] = parseStamp(parts[3])
	if errors.Join(errs[:]...) != nil || h.revision == 0 || life < 0 {
		return head{}, nil, errRecord
	}
	h.life = time.Duration(life) * time.Millisecond
	return h, rest, nil
}

// decode reads a record.
func decode(id string, v []byte) (conversation.Conversation, error) {
	h, rest, err := parseHead(v)
	if err != nil {
		return conversation.Conversation{ID: conversation.ID(id)}, err
	}
	c, err := conversation.DecodeConversation(rest)
	if err == nil && id != "" && string(c.ID) != id {
		err = errors.New("stored record is of another conversation: it is damaged")
	}
	if err != nil {
		return conversation.Conversation{ID: conversation.ID(id)}, err
	}
	c.Revision = h.revision
	if h.active.After(c.LastActive) {
		c.LastActive = h.active
	}
	if h.renewed.After(c.RenewedAt) {
		c.RenewedAt = h.renewed
	}
	return c, nil
}

// life is how long a record is kept without a sign of life, in milliseconds; 0 is for good.
func (s *Store) life(c conversation.Conversation) int64 {
	ttl := c.TTL
	if ttl == 0 && c.Source != conversation.SourceConfig && c.Source != conversation.SourceAdmin {
		ttl = s.o.Life
	}
	if ttl <= 0 {
		return 0
	}
	return (ttl + spare).Milliseconds()
}

func (s *Store) get(ctx context.Context, key string) (v []byte, err error) {
	err = s.use(ctx, func(ctx context.Context) error {
		v, err = s.client.Get(ctx, key).Bytes()
		return err
	})
	return v, err
}

// Get implements conversation.Store.
func (s *Store) Get(ctx context.Context, id conversation.ID) (conversation.Conversation, error) {
	v, err := s.get(ctx, s.record(id))
	if err != nil {
		return conversation.Conversation{}, err
	}
	return decode(string(id), v)
}

// All implements conversation.Store.
func (s *Store) All(ctx context.Context) iter.Seq2[conversation.Conversation, error] {
	return func(yield func(conversation.Conversation, error) bool) {
		for items, err := range s.walk(ctx, s.scripts.page.Run) {
			if err != nil {
				yield(conversation.Conversation{}, err)
				return
			}
			for c, err := range conversation.DecodeAll(items, item.decode) {
				if !yield(c, err) {
					return
				}
			}
		}
	}
}

// Heads implements conversation.SharedStore.
func (s *Store) Heads(ctx context.Context) iter.Seq2[conversation.Head, error] {
	return func(yield func(conversation.Head, error) bool) {
		for items, err := range s.walk(ctx, s.scripts.heads.Run) {
			if err != nil {
				yield(conversation.Head{}, err)
				return
			}
			for _, i := range items {
				h, _, err := parseHead([]byte(i.value))
				if !yield(conversation.Head{
					Touch:    conversation.Touch{ID: conversation.ID(i.id), LastActive: h.active, RenewedAt: h.renewed},
					Revision: h.revision,
				}, err) {
					return
				}
			}
		}
	}
}

// Put implements conversation.Store.
func (s *Store) Put(ctx context.Context, c conversation.Conversation) (conversation.Conversation, error) {
	if c.ID == "" {
		return conversation.Conversation{}, errKey
	}
	before := c.Revision
	c.Revision++
	record, err := conversation.EncodeConversation(c)
	if err != nil {
		return conversation.Conversation{}, err
	}
	err = s.use(ctx, func(ctx context.Context) error {
		n, err := s.scripts.put.Run(ctx, s.client, []string{s.record(c.ID), s.index()},
			string(c.ID), before, c.Revision, s.life(c), stamp(c.LastActive), stamp(c.RenewedAt), record, s.channel(), s.origin).Int()
		return swapped(n, err)
	})
	if err != nil {
		return conversation.Conversation{}, err
	}
	return c, nil
}

// swapped says what a script answers that compares and swaps.
func swapped(n int, err error) error {
	if err == nil && n != 1 {
		return conversation.ErrConflict
	}
	return err
}

// Touch implements conversation.Store.
func (s *Store) Touch(ctx context.Context, touches []conversation.Touch) error {
	for len(touches) > 0 {
		n := min(len(touches), touchLength)
		message, err := s.encodeTouches(touches[:n])
		if err != nil {
			return err
		}
		args := make([]any, 0, 3+3*n)
		args = append(args, s.key("conversation", ""), s.channel(), message)
		for _, t := range touches[:n] {
			args = append(args, string(t.ID), stamp(t.LastActive), stamp(t.RenewedAt))
		}
		if err := s.use(ctx, func(ctx context.Context) error {
			return s.scripts.touch.Run(ctx, s.client, []string{s.index()}, args...).Err()
		}); err != nil {
			return err
		}
		touches = touches[n:]
	}
	return nil
}

// Delete implements conversation.Store.
func (s *Store) Delete(ctx context.Context, id conversation.ID, revision uint64) error {
	return s.use(ctx, func(ctx context.Context) error {
		n, err := s.scripts.remove.Run(ctx, s.client, []string{s.record(id), s.index()},
			string(id), revision, s.channel(), s.message(kindRemoved, []byte(id))).Int()
		if err == nil && n == 0 {
			return conversation.ErrNotFound
		}
		return swapped(n, err)
	})
}

// Generation implements conversation.Store.
func (s *Store) Generation(ctx context.Context, server string) (conversation.Generation, error) {
	v, err := s.get(ctx, s.key("generation", server))
	if err != nil {
		return conversation.Generation{}, err
	}
	_, record, _ := bytes.Cut(v, []byte("\n"))
	return conversation.DecodeGeneration(record)
}

// PutGeneration implements conversation.Store.
func (s *Store) PutGeneration(ctx context.Context, g conversation.Generation) error {
	if g.Server == "" {
		return errKey
	}
	record, err := conversation.EncodeGeneration(g)
	if err != nil {
		return err
	}
	return s.use(ctx, func(ctx context.Context) error {
		return swapped(s.scripts.putGeneration.Run(ctx, s.client, []string{s.key("generation", g.Server)},
			g.Number-1, g.Number, record, s.channel(), s.message(kindGeneration, record)).Int())
	})
}
