package stdio

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

const (
	// quiet is how long the watched files must stay as they are before a change
	// counts: programs are written in many pieces.
	quiet = 150 * time.Millisecond
	// recheck is how often they are looked at without any event, since events get
	// lost; poll is how often where there are no events at all.
	recheck = 10 * time.Second
	poll    = time.Second
)

// watcher tells when watched files have changed.
type watcher struct {
	log   *slog.Logger
	roots []string
	open  func() (*fsnotify.Watcher, error)

	current, candidate snapshot
}

// newWatcher looks at what is to be watched. It returns nil if nothing is.
func newWatcher(cfg *Config, log *slog.Logger) *watcher {
	w := &watcher{log: log, roots: watched(cfg), open: fsnotify.NewWatcher}
	if len(w.roots) == 0 {
		return nil
	}

	w.current = w.look()

	return w
}

// watched returns the paths to watch.
func watched(cfg *Config) []string {
	var roots []string

	if cfg.Watch != nil {
		for _, path := range cfg.Watch {
			roots = append(roots, inDir(cfg.Dir, path))
		}

		return roots
	}

	if path, err := program(cfg); err == nil {
		roots = append(roots, path)
	}

	for _, arg := range cfg.Command[1:] {
		path := inDir(cfg.Dir, arg)
		if info, err := os.Stat(path); !strings.HasPrefix(arg, "-") && err == nil && info.Mode().IsRegular() {
			roots = append(roots, path)
		}
	}

	return roots
}

// run calls changed, on its own goroutine, after each change, until ctx ends.
func (w *watcher) run(ctx context.Context, changed func()) {
	events, stop := w.subscribe()
	defer func() { stop() }()

	every := recheck
	if events == nil {
		every = poll
	}

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
			w.log.Info("a watched file changed, replacing the processes of the stdio server", "path", path)
			changed()

			// There may be new directories.
			stop()

			if events, stop = w.subscribe(); events == nil {
				every = poll
			}

			next = quiet
		}

		soon = next == quiet
		timer.Reset(next)
	}
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
func (w *watcher) check() (string, finding) {
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
func (w *watcher) subscribe() (events <-chan fsnotify.Event, stop func()) {
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
func (w *watcher) directories() []string {
	seen := map[string]bool{}

	for _, root := range w.roots {
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
