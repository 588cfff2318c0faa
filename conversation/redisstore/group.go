package redisstore

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func (s *Store) replicas() string { return s.key("replica", "") }

// Incarnation implements conversation.SharedStore.
func (s *Store) Incarnation(ctx context.Context) (name string, err error) {
	err = s.use(ctx, func(ctx context.Context) error {
		name, err = s.scripts.incarnation.Run(ctx, s.client, []string{s.key("meta", "incarnation")}, rand.Text()).Text()
		return err
	})
	return name, err
}

// Announce implements conversation.SharedStore.
func (s *Store) Announce(ctx context.Context, r conversation.Replica, lease time.Duration) (group []conversation.Replica, incarnation string, err error) {
	record, err := json.Marshal(r)
	if err != nil {
		return nil, "", fmt.Errorf("encoding a replica: %w", err)
	}
	var found []string
	err = s.use(ctx, func(ctx context.Context) error {
		found, err = s.scripts.announce.Run(ctx, s.client, []string{s.key("index", "replicas"), s.key("meta", "incarnation")},
			s.replicas(), r.ID, record, lease.Milliseconds(), rand.Text()).StringSlice()
		return err
	})
	if err != nil || len(found) == 0 {
		return nil, "", err
	}
	for _, v := range found[1:] {
		var one conversation.Replica
		if json.Unmarshal([]byte(v), &one) == nil {
			group = append(group, one)
		}
	}
	return group, found[0], nil
}

// Leave implements conversation.SharedStore.
func (s *Store) Leave(ctx context.Context, replica string) error {
	return s.use(ctx, func(ctx context.Context) error {
		return s.scripts.leave.Run(ctx, s.client, []string{s.key("index", "replicas")}, s.replicas(), replica).Err()
	})
}

// Claim implements conversation.SharedStore.
func (s *Store) Claim(ctx context.Context, id conversation.ID, replica string, ttl time.Duration) (ours bool, err error) {
	err = s.use(ctx, func(ctx context.Context) error {
		n, err := s.scripts.claim.Run(ctx, s.client, []string{s.key("claim", string(id))}, s.replicas(), replica, ttl.Milliseconds()).Int()
		ours = n == 1
		return err
	})
	return ours, err
}

// Unclaim implements conversation.SharedStore.
func (s *Store) Unclaim(ctx context.Context, id conversation.ID, replica string) error {
	return s.use(ctx, func(ctx context.Context) error {
		return s.scripts.unclaim.Run(ctx, s.client, []string{s.key("claim", string(id))}, replica).Err()
	})
}
