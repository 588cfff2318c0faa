package redisstore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// A message on the channel is a line of kind and origin, and a body. The kinds are API between versions: one that isn't known is skipped.
const (
	kindConversation = "c" // record
	kindRemoved      = "r" // id
	kindGeneration   = "g" // JSON
	kindTouches      = "t" // JSON
	kindMessage      = "m" // a line of the topic, and a body
)

func (s *Store) message(kind string, body []byte) []byte {
	b := make([]byte, 0, len(kind)+len(s.origin)+len(body)+2)
	b = append(append(b, kind...), ' ')
	b = append(append(b, s.origin...), '\n')
	return append(b, body...)
}

// touch is a conversation.Touch in a message.
type touch struct {
	ID      conversation.ID `json:"id"`
	Active  string          `json:"a"`
	Renewed string          `json:"r"`
}

func (s *Store) encodeTouches(touches []conversation.Touch) ([]byte, error) {
	all := make([]touch, len(touches))
	for i, t := range touches {
		all[i] = touch{t.ID, stamp(t.LastActive), stamp(t.RenewedAt)}
	}
	body, err := json.Marshal(all)
	if err != nil {
		return nil, err
	}
	return s.message(kindTouches, body), nil
}

// Tell implements conversation.SharedStore.
func (s *Store) Tell(ctx context.Context, topic string, body []byte) error {
	m := s.message(kindMessage, append([]byte(topic+"\n"), body...))
	return s.use(ctx, func(ctx context.Context) error { return s.client.Publish(ctx, s.channel(), m).Err() })
}

// parseMessage reads a message of another replica; false if it is our own, or none that is known.
func (s *Store) parseMessage(m []byte) (conversation.Change, bool) {
	line, body, ok := bytes.Cut(m, []byte("\n"))
	kind, origin, ok2 := bytes.Cut(line, []byte(" "))
	if !ok || !ok2 || string(origin) == s.origin {
		return conversation.Change{}, false
	}
	switch string(kind) {
	case kindConversation:
		c, err := decode("", body)
		return conversation.Change{Conversation: &c}, err == nil && c.ID != ""
	case kindRemoved:
		return conversation.Change{Removed: conversation.ID(body)}, len(body) > 0
	case kindGeneration:
		g, err := conversation.DecodeGeneration(body)
		return conversation.Change{Generation: &g}, err == nil
	case kindTouches:
		return parseTouches(body)
	case kindMessage:
		topic, body, ok := bytes.Cut(body, []byte("\n"))
		return conversation.Change{Message: &conversation.Message{From: string(origin), Topic: string(topic), Body: body}}, ok
	default:
		return conversation.Change{}, false
	}
}

func parseTouches(body []byte) (conversation.Change, bool) {
	var all []touch
	if json.Unmarshal(body, &all) != nil || len(all) == 0 {
		return conversation.Change{}, false
	}
	c := conversation.Change{Touches: make([]conversation.Touch, len(all))}
	for i, t := range all {
		active, err := parseStamp([]byte(t.Active))
		renewed, err2 := parseStamp([]byte(t.Renewed))
		if err != nil || err2 != nil {
			return conversation.Change{}, false
		}
		c.Touches[i] = conversation.Touch{ID: t.ID, LastActive: active, RenewedAt: renewed}
	}
	return c, true
}

// Watch implements conversation.SharedStore.
func (s *Store) Watch(ctx context.Context, fn func(conversation.Change)) error {
	for ctx.Err() == nil {
		s.subscribe(ctx, fn)
		pause(ctx, s.o.ProbeInterval)
	}
	return nil
}

// subscribe reads the channel until that fails.
func (s *Store) subscribe(ctx context.Context, fn func(conversation.Change)) {
	if s.begin() != nil {
		return
	}
	sub := s.client.Subscribe(ctx, s.channel())
	s.ops.Done() // closing the store needn't wait for it
	defer func() { _ = sub.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = sub.Close() })
	defer stop()
	asked := false
	for ctx.Err() == nil {
		m, err := sub.ReceiveTimeout(ctx, s.o.PingInterval)
		if err != nil {
			var e net.Error
			if asked || !errors.As(err, &e) || !e.Timeout() || sub.Ping(ctx) != nil {
				s.check(ctx)
				return
			}
			asked = true
			continue
		}
		asked = false
		switch m := m.(type) {
		case *redis.Subscription: // after each reconnection, too
			fn(conversation.Change{Missed: true})
		case *redis.Message:
			if c, ok := s.parseMessage([]byte(m.Payload)); ok {
				fn(c)
			}
		}
	}
}

// check finds out whether the server went away, since the channel did.
func (s *Store) check(ctx context.Context) {
	_ = s.use(ctx, func(ctx context.Context) error { return s.client.Exists(ctx, s.index()).Err() })
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
