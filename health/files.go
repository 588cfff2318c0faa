package health

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"
)

// files are the pid file and the other files that tell of the backend's process. They are read at every look; run only makes
// a look come sooner, so that a lost notice, or a machine without any left to give, costs no more than a probe interval.
type files struct {
	pidFile string
	all     []string // every watched path, the pid file too
	log     *slog.Logger
}

// newFiles returns nil if there is nothing to watch.
func newFiles(cfg *Config, log *slog.Logger) *files {
	f := &files{pidFile: cfg.PIDFile, all: slices.Clone(cfg.Watch), log: log}
	if f.pidFile != "" {
		f.all = append(f.all, f.pidFile)
	}
	if len(f.all) == 0 {
		return nil
	}
	return f
}

// footprint is what the files look like at one moment.
type footprint struct {
	at      time.Time // of the look
	since   time.Time // of the first look that found it so
	marks   string    // of every path: changes when one is written or replaced
	pidMark string    // of the pid file
	pid     string    // what the pid file says; empty if that is nothing
	started string    // when that process started, where it can be seen; a pid may be used again
}

// read looks at the files.
func (f *files) read() footprint {
	if f == nil {
		return footprint{}
	}
	now := time.Now()
	p := footprint{at: now, since: now}
	for _, path := range f.all {
		p.marks += mark(path) + "\n"
	}
	if f.pidFile != "" {
		p.pidMark = mark(f.pidFile)
		p.pid = readPID(f.pidFile)
		p.started = startOf(p.pid)
	}
	return p
}

// another reports whether a pid file names another process than it did before.
func (p footprint) another(before footprint) bool {
	switch {
	case p.pid == "" || before.pid == "":
		return false
	case p.pid != before.pid:
		return true
	default:
		// The same number after the file was written again. Only the start time can tell, and only if it is the same
		// process table.
		return p.pidMark != before.pidMark && p.started != "" && before.started != "" && p.started != before.started
	}
}

func mark(path string) string {
	info, err := os.Stat(path)
	if err != nil {
		return ""
	}
	return strconv.FormatInt(info.ModTime().UnixNano(), 36) + "/" + strconv.FormatInt(info.Size(), 36) + "/" + fileID(info)
}

func readPID(path string) string {
	const most = 64
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer closeBody(f)
	text, err := io.ReadAll(io.LimitReader(f, most))
	if err != nil {
		return ""
	}
	return string(bytes.TrimSpace(text))
}

// startOf returns when a process started, in clock ticks after boot, or "".
func startOf(pid string) string {
	if _, err := strconv.ParseUint(pid, 10, 32); err != nil {
		return ""
	}
	stat, err := os.ReadFile(filepath.Join("/proc", pid, "stat"))
	if err != nil {
		return ""
	}
	// The second field is the name in parentheses, which may hold anything. The start time is the 22nd.
	const after = 22 - 3
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) <= after {
		return ""
	}
	return fields[after]
}

// run calls changed when one of the files may have changed, until ctx ends. The directories are watched, not the files, which
// may be replaced or not exist yet.
func (f *files) run(ctx context.Context, changed func()) {
	w, err := fsnotify.NewWatcher()
	if err != nil {
		f.log.Warn("cannot watch files, looking at them with every probe instead", "err", err)
		return
	}
	defer closeBody(w)
	dirs := map[string]bool{}
	for _, path := range f.all {
		dirs[filepath.Dir(path)] = true
	}
	missing := f.add(w, dirs)
	const retry = 5 * time.Second
	tick := time.NewTicker(retry)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			missing = f.add(w, missing)
		case e, ok := <-w.Events:
			if !ok {
				return
			}
			// Kubernetes replaces mounted files by a link beside them. A directory that goes takes its watch along.
			if e.Has(fsnotify.Remove|fsnotify.Rename) && dirs[e.Name] {
				missing[e.Name] = true
			}
			if filepath.Base(e.Name) == "..data" || slices.ContainsFunc(f.all, func(p string) bool { return filepath.Clean(p) == e.Name }) {
				changed()
			}
		case err, ok := <-w.Errors:
			if !ok {
				return
			}
			f.log.Debug("watching files", "err", err)
		}
	}
}

// add watches directories and returns those that can't be watched now.
func (f *files) add(w *fsnotify.Watcher, dirs map[string]bool) map[string]bool {
	missing := map[string]bool{}
	for dir := range dirs {
		if err := w.Add(dir); err != nil {
			f.log.Debug("cannot watch a directory yet", "dir", dir, "err", err)
			missing[dir] = true
		}
	}
	return missing
}
