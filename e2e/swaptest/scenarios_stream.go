//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// hear opens the streams of n clients.
func (w *world) hear(ctx context.Context, n int) ([]*client, []*listener, func(), error) {
	clients, err := w.clients(ctx, n)
	if err != nil {
		return nil, nil, nil, err
	}
	var all []*listener
	closeAll := func() {
		for _, l := range all {
			l.close()
		}
	}
	for _, c := range clients {
		l, err := w.listen(ctx, c)
		if err != nil {
			closeAll()
			return nil, nil, nil, notApplicableError{"offers no GET stream: " + err.Error()}
		}
		all = append(all, l)
	}
	return clients, all, closeAll, nil
}

// stream replaces the backend under one open stream, and has the new process send something.
func stream(ctx context.Context, w *world) error {
	_, all, closeAll, err := w.hear(ctx, 1)
	if err != nil {
		return err
	}
	defer closeAll()
	if err := w.swap(ctx, "v1"); err != nil {
		return err
	}
	var problem error
	until := time.Now().Add(w.o.Patience)
	for heard := false; !heard && time.Now().Before(until); {
		if err := w.admin(ctx, "list_changed"); err != nil {
			return err
		}
		pass(ctx, 500*time.Millisecond)
		told, ended, closed := all[0].state()
		if ended > 0 {
			problem = errors.New("the stream ended")
			if closed != nil {
				problem = closed
			}
			break
		}
		heard = told > 0
		if !heard {
			problem = fmt.Errorf("the stream stayed open, but nothing came from the new process in %s", w.o.Patience)
		} else {
			problem = nil
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return problem
}

// announced replaces the backend by one with other tools.
func announced(ctx context.Context, w *world) error {
	clients, all, closeAll, err := w.hear(ctx, listeners)
	if err != nil {
		return err
	}
	defer closeAll()
	if err := w.swap(ctx, "v2"); err != nil {
		return err
	}
	if err := w.told(ctx, all); err != nil {
		return err
	}
	for _, c := range clients {
		one, cancel := context.WithTimeout(ctx, w.o.Patience)
		names, err := c.list(one)
		cancel()
		if err != nil {
			return fmt.Errorf("told, but listing the tools: %w", err)
		}
		if !slices.Contains(names, "multiply") || slices.Contains(names, "count") {
			return errors.New("told, but the tools that are listed are the old process's")
		}
	}
	return nil
}

// told waits until all were told that the tools changed.
func (w *world) told(ctx context.Context, all []*listener) error {
	heard := 0
	err := eventually(ctx, w.o.Patience, "the notice", func() bool {
		heard = 0
		for _, l := range all {
			if told, _, _ := l.state(); told > 0 {
				heard++
			}
		}
		return heard == len(all)
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	err = fmt.Errorf("%d of %d clients were told within %s", heard, len(all), w.o.Patience)
	if _, ended, closed := all[0].state(); closed != nil {
		err = fmt.Errorf("%w; the stream: %w", err, closed)
	} else if ended > 0 {
		err = fmt.Errorf("%w; the stream ended, and was opened again", err)
	}
	return err
}

// unannounced replaces the backend by one with the same tools, written otherwise, and then by one with others: where
// nothing is announced, that the same tools aren't says nothing.
func unannounced(ctx context.Context, w *world) error {
	clients, all, closeAll, err := w.hear(ctx, listeners)
	if err != nil {
		return err
	}
	defer closeAll()
	if err := w.swap(ctx, "v1b"); err != nil {
		return err
	}
	for _, c := range clients {
		_ = w.add(ctx, c, 1) // whether it works is another scenario's
	}
	pass(ctx, quiet)
	for _, l := range all {
		if told, _, _ := l.state(); told > 0 {
			return fmt.Errorf("a client was told %d times", told)
		}
	}
	if err := w.swap(ctx, "v2"); err != nil {
		return err
	}
	if err := w.told(ctx, all); err != nil && ctx.Err() == nil {
		return notApplicableError{"announces nothing: " + err.Error()}
	}
	return ctx.Err()
}
