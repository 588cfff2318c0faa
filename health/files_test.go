package health

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

func TestWhatAPIDFileProves(t *testing.T) {
	const old, other = "999999991", "999999992" // no pids
	self := strconv.Itoa(os.Getpid())
	tests := map[string]struct {
		before string
		after  string
		change func(c *Checker, w *world, path string)
		want   bool
	}{
		"another pid":                  {before: old, after: other, want: true},
		"the same pid, written again":  {before: old, after: old, want: false},
		"the same process":             {before: self, after: self, want: false},
		"the same pid, and lost":       {before: old, after: old, change: func(c *Checker, _ *world, _ string) { c.evidence.lost = true }, want: true},
		"emptied":                      {before: old, after: "", want: false},
		"nothing before":               {before: "", after: other, want: false},
		"not written":                  {before: old, after: "-", want: false},
		"the old process still serves": {before: old, after: other, change: func(_ *Checker, w *world, _ string) { w.kept = w.process }, want: false},
		"a process serves, maybe the new one": {
			before: old, after: other,
			change: func(c *Checker, w *world, _ string) { w.kept, c.lostAt = w.process, time.Now() },
			want:   true,
		},
		"late, after the swap was seen": {before: old, after: other, change: func(c *Checker, _ *world, _ string) { c.swappedAt = time.Now() }, want: false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "pid")
			write := func(text string) {
				t.Helper()
				if err := os.WriteFile(path+"~", []byte(text+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(path+"~", path); err != nil {
					t.Fatal(err)
				}
			}
			write(tt.before)
			cfg := quick(mustURL(t, "http://127.0.0.1:1"))
			cfg.PIDFile = path
			c, err := newChecker(cfg, Deps{})
			if err != nil {
				t.Fatal(err)
			}
			w := &world{process: &fakeProcess{}}
			c.backend = w
			if tt.change != nil {
				tt.change(c, w, path)
			}
			if tt.after != "-" {
				write(tt.after)
			}
			if got := c.pidChanged(t.Context(), c.files.read()); got != tt.want {
				t.Errorf("got %t, want %t", got, tt.want)
			}
			if tt.want && c.pidChanged(t.Context(), c.files.read()) {
				t.Error("it counts twice")
			}
		})
	}
}

func TestStartOfAProcess(t *testing.T) {
	if startOf(strconv.Itoa(os.Getpid())) == "" {
		if _, err := os.Stat("/proc/self/stat"); err == nil {
			t.Error("no start time of this process")
		}
	}
	for _, pid := range []string{"", "x", "-1", "../1", "999999991"} {
		if got := startOf(pid); got != "" {
			t.Errorf("%q started at %s", pid, got)
		}
	}
	now, before := footprint{pid: "1", pidMark: "b", started: "20"}, footprint{pid: "1", pidMark: "a", started: "10"}
	if !now.another(before) {
		t.Error("a pid that is used again is taken for the same process")
	}
}

func TestFilesAreWatchedWhereverTheyComeFrom(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	cfg := Config{Watch: []string{filepath.Join(dir, "marker")}}
	f := newFiles(&cfg, slog.New(slog.DiscardHandler))
	changed := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		f.run(ctx, func() { changed <- struct{}{} })
	}()
	defer func() { cancel(); <-done }()
	before := f.read()
	eventually(t, "a change", func() bool {
		if err := os.WriteFile(cfg.Watch[0], []byte(time.Now().String()), 0o600); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
			return true
		case <-time.After(10 * time.Millisecond):
			return false
		}
	})
	if f.read().marks == before.marks {
		t.Error("the marks are the same")
	}
	if newFiles(&Config{}, nil).read() != (footprint{}) {
		t.Error("there is something to see where nothing is watched")
	}
}
