package filewatch

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func write(t *testing.T, path, text string) {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestCheck(t *testing.T) {
	t.Parallel()

	for _, tt := range []struct {
		name    string
		change  func(t *testing.T, dir string)
		changed bool
	}{
		{"nothing", func(*testing.T, string) {}, false},
		{"same content", func(t *testing.T, dir string) { t.Helper(); write(t, filepath.Join(dir, "src/a.py"), "a") }, false},
		{"other content", func(t *testing.T, dir string) { t.Helper(); write(t, filepath.Join(dir, "src/a.py"), "b") }, true},
		{"new file", func(t *testing.T, dir string) { t.Helper(); write(t, filepath.Join(dir, "src/sub/c.py"), "") }, true},
		{"ignored files", func(t *testing.T, dir string) {
			t.Helper()

			for _, name := range []string{"__pycache__/a.pyc", ".git/HEAD", "a.py~", "sub/x.pyc", "node_modules/x/y.js"} {
				write(t, filepath.Join(dir, "src", name), "x")
			}
		}, false},
		{"removed from a directory", func(t *testing.T, dir string) {
			t.Helper()

			if err := os.Remove(filepath.Join(dir, "src/sub/b.py")); err != nil {
				t.Fatal(err)
			}
		}, true},
		{"all removed", func(t *testing.T, dir string) {
			t.Helper()

			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		}, false},
		{"link to another", func(t *testing.T, dir string) {
			t.Helper()
			write(t, filepath.Join(dir, "v2/server"), "2")

			if err := os.Remove(filepath.Join(dir, "current")); err != nil {
				t.Fatal(err)
			}

			if err := os.Symlink("v2", filepath.Join(dir, "current")); err != nil {
				t.Fatal(err)
			}
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			dir := t.TempDir()
			write(t, filepath.Join(dir, "src/a.py"), "a")
			write(t, filepath.Join(dir, "src/sub/b.py"), "b")
			write(t, filepath.Join(dir, "v1/server"), "1")

			if err := os.Symlink("v1", filepath.Join(dir, "current")); err != nil {
				t.Fatal(err)
			}

			paths := []string{filepath.Join(dir, "src"), filepath.Join(dir, "current/server"), filepath.Join(dir, "none")}
			w := New(func() []string { return paths }, time.Hour, nil)

			if path, got := w.check(); got != same {
				t.Fatalf("%s changed at once", path)
			}

			tt.change(t, dir)

			want := same

			if tt.changed {
				if path, got := w.check(); got != unsure {
					t.Errorf("first look: %s, %d", path, got)
				}

				want = different
			}

			if path, got := w.check(); got != want {
				t.Errorf("got %s, %d, want %d", path, got, want)
			}

			if path, got := w.check(); got != same {
				t.Errorf("then: %s, %d", path, got)
			}
		})
	}
}

func TestWatcherRuns(t *testing.T) {
	for _, tt := range []struct {
		name string
		open func() (*fsnotify.Watcher, error)
	}{
		{"by events", fsnotify.NewWatcher},
		{"without events", func() (*fsnotify.Watcher, error) { return nil, syscall.EMFILE }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "a"), "a")

			log := &bytes.Buffer{} // read when nobody writes any more
			w := New(func() []string { return []string{dir} }, time.Hour, slog.New(slog.NewTextHandler(log, nil)))
			w.open = tt.open
			ctx, cancel := context.WithCancel(t.Context())
			changes := make(chan struct{}, 10)
			done := make(chan struct{})

			go func() {
				defer close(done)

				w.Run(ctx, func(string) { changes <- struct{}{} })
			}()

			// The directory in the middle is new.
			for _, name := range []string{"new/b", "new/c", "a"} {
				write(t, filepath.Join(dir, name), "new")
				<-changes
			}

			cancel()
			<-done

			if said := strings.Contains(log.String(), "can't be had"); said != (tt.name != "by events") {
				t.Error(log)
			}
		})
	}
}

// TestOtherPaths: what is watched may change, which is no change of a file.
func TestOtherPaths(t *testing.T) {
	t.Parallel()

	a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
	write(t, a, "a")
	write(t, b, "b")

	paths := []string{a}
	w := New(func() []string { return paths }, time.Hour, nil)
	paths = []string{b}

	if path, got := w.check(); got != same {
		t.Errorf("%s changed by being watched", path)
	}

	write(t, a, "other")
	write(t, b, "other")

	for _, want := range []finding{unsure, different, same} {
		if path, got := w.check(); got != want || got != same && path != b {
			t.Errorf("got %s, %d, want %d", path, got, want)
		}
	}
}
