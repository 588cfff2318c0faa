// Package filewatch tells when files have got another content, however they are
// written: in place, by a file that takes the old one's place, or behind links as
// Kubernetes mounts them.
package filewatch

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long the watched files must stay as they are before a change
	// counts: programs are written in many pieces.
	quiet = 150 * time.Millisecond
	// poll is how often they are looked at where there are no events at all.
	poll = time.Second
)

// Watcher tells when watched files have changed. What can't be read counts as
// unchanged: it is probably being replaced.
type Watcher struct {
	log     *slog.Logger
	paths   func() []string
	recheck time.Duration
	open    func() (*fsnotify.Watcher, error)

	current, candidate snapshot
}

// New looks at what is to be watched, files or directories. Paths is asked at
// each look, so they need not stay the same. Recheck is how often to look without
// any event, since events get lost and some file systems have none.
func New(paths func() []string, recheck time.Duration, log *slog.Logger) *Watcher {
	w := &Watcher{log: log, paths: paths, recheck: recheck, open: fsnotify.NewWatcher}
	w.current = w.look()

	return w
}

// Run calls changed with one of the paths that changed, on its own goroutine,
// after each change, until ctx ends. It is called once.
func (w *Watcher) Run(ctx context.Context, changed func(path string)) {
	events, stop := w.subscribe()
	defer func() { stop() }()

	every := w.every(events)

	// What changed before there were events is seen by looking once more.
	timer := time.NewTimer(quiet)
	defer timer.Stop()

	for soon := true; ; {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			if !soon && e.Op != fsnotify.Chmod {
				soon = true // and not later, however many there are

				timer.Reset(quiet)
			}

			continue
		case <-timer.C:
		}

		next := every

		switch path, step := w.check(); step {
		case same:
		case unsure:
			next = quiet
		case different:
			changed(path)

			// There may be new directories.
			stop()

			events, stop = w.subscribe()
			every = w.every(events)
			next = quiet
		}

		soon = next == quiet
		timer.Reset(next)
	}
}

// every is how often to look without an event.
func (w *Watcher) every(events <-chan fsnotify.Event) time.Duration {
	if events == nil {
		return min(poll, w.recheck)
	}

	return w.recheck
}

// finding is what a look at the files shows.
type finding int

const (
	same      finding = iota + 1
	unsure            // they are changing
	different         // they have changed
)

// check looks at the files. What changed must look the same twice. It returns one
// of the paths that changed.
func (w *Watcher) check() (string, finding) {
	now := w.look()

	path, changed := now.differs(w.current)
	if !changed {
		// Only dates may differ: what was read needn't be read again.
		w.current, w.candidate = now, nil
		return "", same
	}

	if w.candidate != nil {
		if _, moving := now.differs(w.candidate); !moving {
			w.current, w.candidate = now, nil
			return path, different
		}
	}

	w.candidate = now

	return path, unsure
}

// subscribe asks for events of all directories in which something is watched. It
// returns nil if there will be none.
func (w *Watcher) subscribe() (events <-chan fsnotify.Event, stop func()) {
	watch, err := w.open()
	if err != nil {
		w.log.Warn("file events can't be had, looking at the watched files every second", "err", err)
		return nil, func() {}
	}

	for _, dir := range w.directories() {
		// What isn't there is found by looking.
		if err := watch.Add(dir); err != nil && !os.IsNotExist(err) {
			w.log.Warn("a directory can't be watched, looking at the watched files every second", "path", dir, "err", err)
			_ = watch.Close()

			return nil, func() {}
		}
	}

	done := make(chan struct{})

	go func() { // Errors must be read; each means that events were lost
		defer close(done)

		for err := range watch.Errors {
			w.log.Debug("file events were lost", "err", err)
		}
	}()

	return watch.Events, func() {
		_ = watch.Close()
		<-done
	}
}

// directories returns where events tell of changes. The files themselves aren't
// watched: they get replaced. Where they are links, the place that they lead to
// counts as well.
func (w *Watcher) directories() []string {
	seen := map[string]bool{}

	for _, root := range w.paths() {
		seen[filepath.Dir(root)] = true

		if target, err := filepath.EvalSymlinks(root); err == nil {
			seen[filepath.Dir(target)] = true
		}

		for dir := range w.current[root].dirs {
			seen[dir] = true
		}
	}

	dirs := make([]string, 0, len(seen))
	for dir := range seen {
		dirs = append(dirs, dir)
	}

	return dirs
}
