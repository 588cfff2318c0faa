package redisstore

import (
	"context"
	"iter"

	"github.com/redis/go-redis/v9"
)

// item is what a walk finds.
type item struct{ id, value string }

type runScript func(ctx context.Context, c redis.Scripter, keys []string, args ...any) *redis.Cmd

// walk goes through the index, page by page. Nothing is held meanwhile: the caller may write.
func (s *Store) walk(ctx context.Context, page runScript) iter.Seq2[item, error] {
	return func(yield func(item, error) bool) {
		for from := "-"; ; {
			var found []string
			if err := s.use(ctx, func(ctx context.Context) (err error) {
				found, err = page(ctx, s.client, []string{s.index()}, s.key("conversation", ""), from, pageLength).StringSlice()
				return err
			}); err != nil {
				yield(item{}, err)
				return
			}
			for i := 1; i+1 < len(found); i += 2 {
				if !yield(item{found[i], found[i+1]}, nil) {
					return
				}
			}
			if len(found) == 0 || found[0] == "" {
				return
			}
			from = "(" + found[0]
		}
	}
}
