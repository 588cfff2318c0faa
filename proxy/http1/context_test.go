package http1

import (
	"context"
	"testing"
	"time"
)

type key struct{}

// TestContext: the context of a request is one that package context works with.
func TestContext(t *testing.T) {
	t.Parallel()

	c := &requestContext{base: context.WithValue(t.Context(), key{}, "v")}

	child, cancel := context.WithTimeout(c, time.Hour)
	defer cancel()

	called := make(chan string, 10)
	stopped := context.AfterFunc(c, func() { called <- "stopped" })
	context.AfterFunc(c, func() { called <- "called" })

	switch {
	case child.Value(key{}) != "v":
		t.Error("the value of the base is lost")
	case c.Err() != nil || child.Err() != nil:
		t.Error("it has ended")
	case !stopped() || stopped():
		t.Error("a function can't be taken back, or twice")
	}

	c.end()
	c.end()

	wait(t, "the end", c.Done())
	wait(t, "the end of a derived one", child.Done())

	if got := wait(t, "the function", called); got != "called" {
		t.Error(got)
	}

	if c.Err() != context.Canceled || child.Err() != context.Canceled { //nolint:errorlint // these very values
		t.Errorf("they ended with %v, %v", c.Err(), child.Err())
	}

	stop := context.AfterFunc(c, func() { called <- "late" })

	if got := wait(t, "a function that came late", called); got != "late" || stop() {
		t.Error(got)
	}
}
