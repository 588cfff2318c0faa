//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"sync"
	"time"
)

// reopenAfter is how long a client waits before it opens its stream again.
const reopenAfter = 250 * time.Millisecond

// listener is a client's GET stream. It is opened again whenever it ends, as SDKs do.
type listener struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu    sync.Mutex
	told  int   // notices that the tools changed
	ended int   // how often the stream ended
	open  bool  // it is open
	last  error // why it couldn't be opened again
}

// listen opens the GET stream of a client.
func (w *world) listen(ctx context.Context, c *client) (*listener, error) {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{cancel: cancel, done: make(chan struct{})}
	resp, err := l.get(ctx, c, w.o.Patience) //nolint:bodyclose // read closes it
	if err != nil {
		cancel()
		return nil, err
	}
	go func() {
		defer close(l.done)
		for ctx.Err() == nil {
			if err == nil {
				l.read(resp)
			}
			pass(ctx, reopenAfter)
			if ctx.Err() == nil {
				resp, err = l.get(ctx, c, w.o.Patience) //nolint:bodyclose // read closes it
			}
		}
	}()
	return l, nil
}

// get opens the stream once.
func (l *listener) get(ctx context.Context, c *client, patience time.Duration) (*http.Response, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(patience, func() { cancel(context.DeadlineExceeded) })
	resp, err := c.send(ctx, c.session.Load(), http.MethodGet, "", nil)
	if err != nil && !timer.Stop() {
		err = errors.New("no answer in time")
	}
	timer.Stop()
	if err == nil {
		if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); resp.StatusCode != http.StatusOK || kind != "text/event-stream" {
			err = refusal(resp)
			resp.Body.Close()
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open, l.last = err == nil, err
	if err != nil {
		cancel(nil)
		return nil, err
	}
	return resp, nil
}

// read reads the stream until it ends.
func (l *listener) read(resp *http.Response) {
	defer resp.Body.Close()
	_ = events(resp.Body, func(raw []byte) bool {
		if bytes.Contains(raw, []byte(`"notifications/tools/list_changed"`)) {
			l.mu.Lock()
			l.told++
			l.mu.Unlock()
		}
		return true
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open = false
	l.ended++
}

// close closes the stream.
func (l *listener) close() {
	l.cancel()
	<-l.done
}

// state returns how often the client was told that the tools changed, how often the stream ended, and why it isn't open.
func (l *listener) state() (told, ended int, closed error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.open {
		closed = errors.New("it ended")
		if l.last != nil {
			closed = fmt.Errorf("it ended, and opening it again: %w", l.last)
		}
	}
	return l.told, l.ended, closed
}
