//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	callers   = 10 // clients that call all the time
	listeners = 3  // clients with a stream
	stormSize = 50 // calls at one time
	slowCall  = 2 * time.Second
	quiet     = 5 * time.Second // in which nothing may be announced
)

// scenario is one way of replacing the backend, and what must come of it.
type scenario struct {
	name string
	asks string
	args []string // flags of the test backend
	run  func(context.Context, *world) error
}

// notApplicableError says why a scenario can't be put to a proxy.
type notApplicableError struct{ why string }

func (n notApplicableError) Error() string { return n.why }

func scenarios() []scenario {
	return []scenario{
		{
			"instant", "ten clients call on while the process is replaced at once three times, killed or stopped in good order: every call is answered",
			nil, instant(revision),
		},
		{
			"strict", "the new process refuses what comes before notifications/initialized: sessions from before work on",
			[]string{"-reject-until-initialized"},
			kept,
		},
		{
			"400", "the new process answers 400 instead of 404 for sessions that it doesn't know: sessions from before work on",
			[]string{"-unknown-session", "400"},
			kept,
		},
		{
			"storm", "fifty calls at once on one session right after the replacement, and others beside it: each runs once and is answered, with one handshake for each session",
			nil, storm,
		},
		{
			"away", "ten clients call on while there is no backend for some seconds: no call fails",
			nil, away(revision),
		},
		{
			"in-flight", "a call with a side effect is running when the process is killed: it runs once at most, and its client gets a JSON-RPC response with its id",
			[]string{"-slow", slowCall.String()},
			inFlight,
		},
		{
			"stream", "a client's GET stream stays open over the replacement, and what the new process sends comes on it",
			nil, stream,
		},
		{
			"announced", "the new process has other tools: every client with a stream is told (notifications/tools/list_changed) and lists them",
			nil, announced,
		},
		{
			"unannounced", "the new process has the same tools, listed in another order: no client is told that they changed, until a process has others",
			nil, unannounced,
		},
		{
			"stateless", "as instant, with calls of the stateless revision 2026-07-28",
			[]string{"-mode", "stateless"},
			instant(stateless),
		},
		{
			"stateless-away", "as away, with calls of the stateless revision 2026-07-28",
			[]string{"-mode", "stateless"},
			away(stateless),
		},
	}
}

// choose returns the scenarios with these names, or all.
func choose(names []string) ([]scenario, error) {
	all := scenarios()
	if len(names) == 0 {
		return all, nil
	}
	known := []string{}
	for _, s := range all {
		known = append(known, s.name)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, usageError{fmt.Errorf("there is no scenario %q, only %s", name, strings.Join(known, ", "))}
		}
	}
	return slices.DeleteFunc(all, func(s scenario) bool { return !slices.Contains(names, s.name) }), nil
}

// carries returns an error unless the proxy passes on calls of a revision.
func (w *world) carries(ctx context.Context, revision string) error {
	if revision != stateless {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.o.Patience)
	defer cancel()
	c := newClient(w.url, revision)
	defer c.close(ctx)
	if _, err := c.call(ctx, "balance", map[string]string{"account": "0"}); err != nil {
		return notApplicableError{"doesn't carry revision " + revision + ": " + err.Error()}
	}
	return nil
}

func instant(revision string) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		if err := w.carries(ctx, revision); err != nil {
			return err
		}
		c, err := w.crowd(ctx, callers, revision)
		if err != nil {
			return err
		}
		defer c.stop()
		for _, graceful := range []bool{false, true, false} {
			if graceful {
				w.backend.terminate()
			} else {
				w.backend.kill()
			}
			if err := w.start(ctx, "v1"); err != nil {
				return err
			}
			if err := c.goOn(ctx, w.o.Patience); err != nil {
				return err
			}
		}
		return c.verdict()
	}
}

func away(revision string) func(context.Context, *world) error {
	return func(ctx context.Context, w *world) error {
		if err := w.carries(ctx, revision); err != nil {
			return err
		}
		c, err := w.crowd(ctx, callers, revision)
		if err != nil {
			return err
		}
		defer c.stop()
		w.backend.kill()
		pass(ctx, w.o.Away)
		if err := w.start(ctx, "v1"); err != nil {
			return err
		}
		if err := c.goOn(ctx, w.o.Patience); err != nil {
			return err
		}
		return c.verdict()
	}
}

// kept replaces the backend under sessions that have nothing under way.
func kept(ctx context.Context, w *world) error {
	clients, err := w.clients(ctx, 3)
	if err != nil {
		return err
	}
	if err := w.swap(ctx, "v1"); err != nil {
		return err
	}
	var t tally
	for range 2 {
		for _, c := range clients {
			t.add(w.add(ctx, c, 1))
		}
	}
	return t.err()
}

func storm(ctx context.Context, w *world) error {
	clients, err := w.clients(ctx, 3)
	if err != nil {
		return err
	}
	before := w.ran("add")
	if err := w.swap(ctx, "v1"); err != nil {
		return err
	}
	if err := w.together(ctx, clients); err != nil {
		return err
	}
	if n, want := w.ran("add")-before, stormSize+len(clients)-1; n != want {
		return fmt.Errorf("%d calls ran %d times", want, n)
	}
	return w.handshakes(len(clients))
}

// inFlight kills the backend while it runs a call.
func inFlight(ctx context.Context, w *world) error {
	clients, err := w.clients(ctx, 1)
	if err != nil {
		return err
	}
	one, cancel := context.WithTimeout(ctx, w.o.Patience)
	defer cancel()
	answered := make(chan error, 1)
	go func() {
		_, err := clients[0].request(one, "tools/call", map[string]any{"name": "transfer", "arguments": map[string]int{"amount": 1}})
		answered <- err
	}()
	if err := eventually(one, grace, "the call to run", func() bool { return w.ran("transfer") > 0 }); err != nil {
		cancel()
		return errors.Join(err, <-answered)
	}
	if err := w.swap(ctx, "v1"); err != nil {
		return err
	}
	err = <-answered
	pass(ctx, time.Second) // for a second run that would come now
	switch n := w.ran("transfer"); {
	case ctx.Err() != nil:
		return ctx.Err()
	case n > 1 && err != nil:
		return fmt.Errorf("the call ran %d times, and its client got: %w", n, err)
	case n > 1:
		return fmt.Errorf("the call ran %d times", n)
	case err != nil:
		return fmt.Errorf("the call's client got: %w", err)
	}
	return nil
}

// clients connects n clients.
func (w *world) clients(ctx context.Context, n int) ([]*client, error) {
	var all []*client
	for range n {
		c, err := w.client(ctx)
		if err != nil {
			return nil, err
		}
		if err := w.add(ctx, c, 0); err != nil {
			return nil, fmt.Errorf("before the replacement: %w", err)
		}
		all = append(all, c)
	}
	return all, nil
}

// client connects a client, whose session ends with the world.
func (w *world) client(ctx context.Context) (*client, error) {
	one, cancel := context.WithTimeout(ctx, w.o.Patience)
	defer cancel()
	c, err := connect(one, w.url)
	c.recovers = w.o.Recover
	w.release = append(w.release, func() { c.http.CloseIdleConnections() })
	if err == nil {
		_, err = c.list(one)
	}
	if err != nil {
		return nil, fmt.Errorf("connecting before the replacement: %w", err)
	}
	return c, nil
}

// add calls a tool whose answer depends on n.
func (w *world) add(ctx context.Context, c *client, n int) error {
	ctx, cancel := context.WithTimeout(ctx, w.o.Patience)
	defer cancel()
	sum, err := c.call(ctx, "add", map[string]int{"a": n, "b": 1})
	if err == nil && sum != strconv.Itoa(n+1) {
		err = errors.New("the answer is another call's")
	}
	return err
}
