package redisstore

import (
	"context"
	"iter"

	"github.com/redis/go-redis/v9"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// item is what a walk finds.
type item struct{ id, value string }

func (i item) decode() (conversation.Conversation, error) { return decode(i.id, []byte(i.value)) }

type runScript func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

// page is a part of a walk.
type page struct {
	items []item
	next  string // where to go on, "" at the end
	err   error
}

// walk goes through the index, page by page: the next one is on its way while the caller works on the one before. Nothing is held meanwhile:
// the caller may write.
func (s *Store) walk(ctx context.Context, script runScript) iter.Seq2[[]item, error] {
	return func(yield func([]item, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ahead := s.fetch(ctx, script, "-")
		for {
			p := <-ahead
			if p.err != nil {
				yield(nil, p.err)
				return
			}
			if p.next != "" {
				ahead = s.fetch(ctx, script, "("+p.next)
			}
			if !yield(p.items, nil) {
				cancel()
				if p.next != "" {
					<-ahead
				}
				return
			}
			if p.next == "" {
				return
			}
		}
	}
}

// fetch asks for a page and returns at once.
func (s *Store) fetch(ctx context.Context, script runScript, from string) <-chan page {
	c := make(chan page, 1)
	go func() {
		var p page
		p.err = s.use(ctx, func(ctx context.Context) error {
			found, err := script(ctx, s.client, []string{s.index()}, s.key("conversation", ""), from, pageLength).StringSlice()
			if err != nil || len(found) == 0 {
				return err
			}
			p.next = found[0]
			p.items = make([]item, 0, len(found)/2)
			for i := 1; i+1 < len(found); i += 2 {
				p.items = append(p.items, item{found[i], found[i+1]})
			}
			return nil
		})
		c <- p
	}()
	return c
}
