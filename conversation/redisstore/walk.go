package redisstore

import (
	"context"
	"iter"

	"github.com/redis/go-redis/v9"
)

// item is what a walk finds.
type item struct{ id, value string }

type runScript func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

// page is a part of a walk.
type page struct {
	found []string // where to go on, then ids and values in turn
	err   error
}

// walk goes through the index, page by page: the next one is on its way while the caller works on the one before. Nothing is held meanwhile:
// the caller may write.
func (s *Store) walk(ctx context.Context, script runScript) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		ahead := s.fetch(ctx, script, "-")
		for {
			p := <-ahead
			if p.err != nil {
				yield(item{}, p.err)
				return
			}
			more := len(p.found) > 0 && p.found[0] != ""
			if more {
				ahead = s.fetch(ctx, script, "("+p.found[0])
			}
			for i := 1; i+1 < len(p.found); i += 2 {
				if !yield(item{p.found[i], p.found[i+1]}, nil) {
					cancel()
					if more {
						<-ahead
					}
					return
				}
			}
			if !more {
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
		p.err = s.use(ctx, func(ctx context.Context) (err error) {
			p.found, err = script(ctx, s.client, []string{s.index()}, s.key("conversation", ""), from, pageLength).StringSlice()
			return err
		})
		c <- p
	}()
	return c
}
