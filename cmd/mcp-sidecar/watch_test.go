package main

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
)

// watched is a sidecar whose files are in a directory of the test's.
type watched struct {
	*supervised

	dir, file string
	agent     *agent // with a session since before any change
}

// text is a configuration, told from others by its log level.
func (w *watched) text(level string, lines ...string) string {
	return "listen: 127.0.0.1:0\nopsListen: 127.0.0.1:0\nadminListen: 127.0.0.1:0\nstate: " + filepath.Join(w.dir, "state.db") +
		"\ndrainDelay: 0\nsettle: 20ms\n" + strings.Join(lines, "\n") + "\nlogLevel: " + level + "\n"
}

// startWatched starts a sidecar with a file at a path below its directory, which
// put makes.
func startWatched(t *testing.T, path string, put func(w *watched, text string), lines ...string) *watched {
	t.Helper()
	w := &watched{dir: t.TempDir()}
	w.file = filepath.Join(w.dir, path)
	put(w, w.text("info", append(lines, "upstream: "+startBackend(t, "add").url())...))
	load := func() (*config.Config, error) { return config.Load(w.file) }
	cfg, err := load()
	if err != nil {
		t.Fatal(err)
	}
	w.supervised = startSupervised(t, cfg, appOptions{Load: load, File: w.file})
	t.Cleanup(func() { // the test's context has ended
		if err := w.wait(t); err != nil {
			t.Error(err)
		}
	})
	w.agent = newAgent(t, w.app, "/mcp")
	w.agent.tools()
	return w
}

// now is what is in the file with another log level.
func (w *watched) now(t *testing.T, level string) string {
	t.Helper()
	b, err := os.ReadFile(w.file)
	if err != nil {
		t.Fatal(err)
	}
	text, _, _ := strings.Cut(string(b), "logLevel:")
	return text + "logLevel: " + level + "\n"
}

// reaches waits until a log level is in force, and tries the session.
func (w *watched) reaches(t *testing.T, level string) {
	t.Helper()
	eventually(t, "log level "+level, func() bool { return w.level.Level().String() == strings.ToUpper(level) })
	if got := w.agent.tools(); !strings.Contains(got, `"add"`) {
		t.Errorf("the session of before: %s", got)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// TestFileIsFollowed changes the configuration file in the ways that it is changed in.
func TestFileIsFollowed(t *testing.T) {
	plain := func(t *testing.T) func(*watched, string) {
		t.Helper()
		return func(w *watched, text string) { writeFile(t, w.file, text) }
	}
	t.Run("in place", func(t *testing.T) {
		w := startWatched(t, "f.yaml", plain(t))
		writeFile(t, w.file, w.now(t, "warn"))
		w.reaches(t, "warn")
		if logged := w.logs.String(); !strings.Contains(logged, `"changed":["logLevel"]`) {
			t.Errorf("what changed isn't told:\n%s", logged)
		}
	})
	t.Run("by another file in its place", func(t *testing.T) {
		w := startWatched(t, "f.yaml", plain(t))
		for _, level := range []string{"warn", "error"} { // the watch must follow to the new file
			writeFile(t, w.file+".new", w.now(t, level))
			rename(t, w.file+".new", w.file)
			w.reaches(t, level)
		}
	})
	t.Run("moved away and back", func(t *testing.T) {
		w := startWatched(t, "f.yaml", plain(t))
		next := w.now(t, "warn")
		rename(t, w.file, w.file+"~")
		eventually(t, "it is told that the file is missing", func() bool { return w.configErr.Load() != nil })
		w.reaches(t, "info")
		writeFile(t, w.file, next)
		w.reaches(t, "warn")
		if w.configErr.Load() != nil {
			t.Error("the error of before stays")
		}
	})
	t.Run("its directory too", func(t *testing.T) {
		w := startWatched(t, "etc/f.yaml", func(w *watched, text string) {
			if err := os.Mkdir(filepath.Dir(w.file), 0o700); err != nil {
				t.Fatal(err)
			}
			writeFile(t, w.file, text)
		})
		next := w.now(t, "warn")
		rename(t, filepath.Dir(w.file), filepath.Dir(w.file)+".old")
		if err := os.Mkdir(filepath.Dir(w.file), 0o700); err != nil {
			t.Fatal(err)
		}
		writeFile(t, w.file, next)
		w.reaches(t, "warn")
	})
	t.Run("as Kubernetes does", func(t *testing.T) {
		mount := func(w *watched, text string) {
			dir := filepath.Dir(w.file)
			old, _ := os.Readlink(filepath.Join(dir, "..data"))
			data := filepath.Join(dir, "..2026"+old)
			err := os.Mkdir(data, 0o700)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, filepath.Join(data, "f.yaml"), text)
			if err := os.Symlink(filepath.Base(data), filepath.Join(dir, "..data_tmp")); err != nil {
				t.Fatal(err)
			}
			rename(t, filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data"))
			if old == "" {
				err = os.Symlink("..data/f.yaml", w.file)
			} else {
				err = os.RemoveAll(filepath.Join(dir, old))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		w := startWatched(t, "f.yaml", mount)
		for _, level := range []string{"warn", "error"} {
			mount(w, w.now(t, level))
			w.reaches(t, level)
		}
	})
	t.Run("cut short and then whole", func(t *testing.T) {
		w := startWatched(t, "f.yaml", plain(t))
		next := w.now(t, "warn")
		for _, part := range []string{"", next[:len(next)/3], "servers: ["} {
			writeFile(t, w.file, part)
			eventually(t, "rejected", func() bool { return w.configErr.Load() != nil })
			w.reaches(t, "info")
			writeFile(t, w.file, strings.Replace(next, "warn", "info", 1))
			eventually(t, "whole again", func() bool { return w.configErr.Load() == nil })
		}
		writeFile(t, w.file, next)
		w.reaches(t, "warn")
	})
}

// TestRejectedFileIsTriedAgain: what it lacks may come later. Nobody is told of
// the same mistake twice.
func TestRejectedFileIsTriedAgain(t *testing.T) {
	w := startWatched(t, "f.yaml", func(w *watched, text string) { writeFile(t, w.file, text) })
	token := filepath.Join(w.dir, "token")
	writeFile(t, w.file, w.now(t, "warn")+"adminTokenFile: "+token+"\n")
	eventually(t, "rejected", func() bool { return w.configErr.Load() != nil })
	failed := func() string {
		_, all := get(t, "http://"+w.addr("ops")+"/metrics")
		_, n, _ := strings.Cut(all, "\nmcp_sidecar_config_reloads_failed_total ")
		n, _, _ = strings.Cut(n, "\n")
		return n
	}
	if _, before, ok := strings.Cut(w.logs.String(), "configuration rejected"); !ok || strings.Contains(before, "configuration rejected") {
		t.Errorf("not logged once:\n%s", w.logs)
	}
	if got := failed(); got != "1" {
		t.Errorf("%s failed reloads are counted", got)
	}
	writeFile(t, token, "secret")
	w.reaches(t, "warn")
	if got := failed(); got != "1" {
		t.Errorf("in the end %s failed reloads are counted", got)
	}
	if n := strings.Count(w.logs.String(), "configuration rejected"); n != 1 {
		t.Errorf("the mistake is logged %d times", n)
	}
}

// TestSessionKeysAreFollowed rotates the keys under a session.
func TestSessionKeysAreFollowed(t *testing.T) {
	one, two := base64.StdEncoding.EncodeToString(proxy.NewKey()), base64.StdEncoding.EncodeToString(proxy.NewKey())
	var file string
	w := startWatched(t, "f.yaml", func(w *watched, text string) {
		file = filepath.Join(w.dir, "keys")
		writeFile(t, file, one)
		writeFile(t, w.file, text)
	}, "sessionKeyFile: keys")
	replaced := func(n int) {
		t.Helper()
		eventually(t, fmt.Sprintf("keys replaced %d times", n), func() bool {
			return strings.Count(w.logs.String(), "session keys replaced") == n
		})
	}
	writeFile(t, file, two+"\n"+one)
	replaced(1)
	w.reaches(t, "info")
	fresh := newAgent(t, w.app, "/mcp")
	writeFile(t, file, "nonsense")
	eventually(t, "rejected", func() bool { return w.configErr.Load() != nil })
	w.reaches(t, "info")
	writeFile(t, file, two)
	replaced(2)
	if got := fresh.tools(); !strings.Contains(got, `"add"`) {
		t.Errorf("a session of the new key: %s", got)
	}
	if strings.Contains(w.logs.String(), one) || strings.Contains(w.logs.String(), two) || strings.Contains(w.logs.String(), "nonsense") {
		t.Error("a key is in the log")
	}
}

// TestDrainDelay: it may change, and the time since quiescing counts.
func TestDrainDelay(t *testing.T) {
	cfg := testConfig(t, "http://127.0.0.1:1/mcp")
	next := *cfg
	next.DrainDelay = time.Hour
	a := newApp(cfg, appOptions{Load: func() (*config.Config, error) { return &next, nil }})
	if err := a.start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer stopApp(t, a)
	if err := a.Reload(t.Context()); err != nil || a.drainDelay() != time.Hour {
		t.Errorf("the new delay is %s, %v", a.drainDelay(), err)
	}
	if err := a.Quiesce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := a.drainDelay(); d <= 0 || d >= time.Hour {
		t.Errorf("just after quiescing the delay is %s", d)
	}
	long := time.Now().Add(-2 * time.Hour)
	a.quiesced.Store(&long)
	if d := a.drainDelay(); d != 0 {
		t.Errorf("long after quiescing the delay is %s", d)
	}
}
