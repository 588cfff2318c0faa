package http1

import (
	"context"
	"slices"
	"sync"
	"time"
)

// requestContext is the context of one request. It ends with the request, when the
// client leaves, and with the context of the server. It costs next to nothing until
// somebody waits for its end.
type requestContext struct {
	base context.Context //nolint:containedctx // it is one itself

	mu    sync.Mutex
	err   error
	done  chan struct{} // made when it is asked for
	after []*func()     // what to call at the end
}

var _ context.Context = (*requestContext)(nil)

// Deadline implements [context.Context].
func (c *requestContext) Deadline() (time.Time, bool) { return c.base.Deadline() }

// Value implements [context.Context].
func (c *requestContext) Value(key any) any { return c.base.Value(key) }

// Err implements [context.Context].
func (c *requestContext) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()

	return c.err
}

// Done implements [context.Context].
func (c *requestContext) Done() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.done == nil {
		c.done = make(chan struct{})
		if c.err != nil {
			close(c.done)
		}
	}

	return c.done
}

// AfterFunc is what [context.AfterFunc] and the contexts that are derived from this
// one use.
func (c *requestContext) AfterFunc(f func()) (stop func() bool) {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.err != nil {
		go f()
		return func() bool { return false }
	}

	c.after = append(c.after, &f)

	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()

		i := slices.Index(c.after, &f)
		if i >= 0 {
			c.after = slices.Delete(c.after, i, i+1)
		}

		return i >= 0
	}
}

// end ends the context.
func (c *requestContext) end() {
	c.mu.Lock()
	defer c.mu.Unlock()

	if c.err != nil {
		return
	}

	c.err = context.Canceled

	if c.done != nil {
		close(c.done)
	}

	for _, f := range c.after {
		go (*f)()
	}

	c.after = nil
}
