package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
)

// cleanups is what has to be undone, newest first. Every one runs, also after
// another has failed.
type cleanups struct {
	log   *slog.Logger
	stack []cleanup
}

type cleanup struct {
	name string
	run  func(context.Context) error
}

func (c *cleanups) add(name string, run func(context.Context) error) {
	c.stack = append(c.stack, cleanup{name, run})
}

// run undoes everything and returns all errors. It can be called again.
func (c *cleanups) run(ctx context.Context) error {
	stack := c.stack
	c.stack = nil
	var errs []error
	for _, cl := range slices.Backward(stack) {
		c.log.Debug("stopping", "component", cl.name)
		if err := cl.run(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", cl.name, err))
		}
	}
	return errors.Join(errs...)
}
