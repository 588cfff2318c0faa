package stdio

import (
	"errors"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func write(t *testing.T, path, text string) {
	t.Helper()

	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}

	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestHotReload(t *testing.T) {
	cfg := testConfig(t, "plain")
	dir := t.TempDir()
	script, file := filepath.Join(dir, "server.py"), filepath.Join(t.TempDir(), "go on")
	write(t, script, "one")
	cfg.Watch = []string{script}
	f := start(t, cfg)

	s := f.open()
	stream := f.listen(s)
	old := f.pid(s)
	text := make(chan string, 1)

	go func() { text <- f.text(s, "wait", "file", file) }()

	eventually(t, "the request runs", func() bool { return f.session(s).proc.busy() })

	// Not a change of anything but the date.
	if err := os.Chtimes(script, time.Time{}, time.Now().Add(time.Hour)); err != nil {
		t.Fatal(err)
	}

	write(t, filepath.Join(dir, "new.py"), "two")

	if err := os.Rename(filepath.Join(dir, "new.py"), script); err != nil {
		t.Fatal(err)
	}

	stream.end(io.EOF)
	eventually(t, "the swap is told", func() bool { return f.swaps.Load() == 1 })

	if status, _ := f.post(s, toolCall("1", "pid")); status != http.StatusNotFound {
		t.Errorf("got %d", status)
	}

	// Answers to what the old process asked still reach it.
	if status, _ := f.post(s, `{"jsonrpc":"2.0","method":"notifications/x"}`); status != http.StatusAccepted {
		t.Errorf("got %d", status)
	}

	if now := f.pid(f.open()); now == old {
		t.Error("the new session is served by the old process")
	}

	if !alive(old) {
		t.Error("the old process was stopped while it had a request")
	}

	write(t, file, "")
	<-text
	eventually(t, "the old process is stopped", func() bool { return !alive(old) && f.session(s) == nil })
}

func TestHotReloadBreaksOff(t *testing.T) {
	cfg := testConfig(t, "plain")
	cfg.Drain = 10 * time.Millisecond
	f := start(t, cfg)
	s := f.open()
	done := make(chan error, 1)

	go func() {
		err := f.failing(t.Context(), s, toolCall("1", "mute"))
		done <- err
	}()

	eventually(t, "the request runs", func() bool { return f.session(s).proc.busy() })
	f.replace()

	if err := <-done; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestHotReloadDuringStart(t *testing.T) {
	for _, shared := range []bool{false, true} {
		cfg := testConfig(t, "plain")
		cfg.Shared = shared
		cfg.Env["STDIO_TEST_WAIT"] = filepath.Join(t.TempDir(), "ready")
		f := start(t, cfg)
		session := make(chan string, 1)

		go func() { session <- f.open() }()

		initialising := func(revision uint64) func() bool {
			return func() bool {
				f.mu.Lock()
				defer f.mu.Unlock()

				for p := range f.procs {
					if p.revision == revision && !p.started() {
						return true
					}
				}

				return false
			}
		}

		eventually(t, "it starts", initialising(0))
		f.replace()
		eventually(t, "it starts again", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()

			return slices.ContainsFunc(slices.Collect(maps.Keys(f.procs)), func(p *process) bool { return p.revision == 1 })
		})
		write(t, cfg.Env["STDIO_TEST_WAIT"], "")
		f.pid(<-session)
	}
}

func TestStatelessHotReload(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	body, header := statelessRequest("1", methodListen, "")

	resp, err := f.do(t.Context(), http.MethodPost, "", body, header...)
	if err != nil {
		t.Fatal(err)
	}

	f.replace()

	if b, err := io.ReadAll(resp.Body); err != nil {
		t.Errorf("got %s, %v", b, err)
	}

	_ = resp.Body.Close()

	body, header = statelessRequest("1", "tools/list", "")
	if status, _ := f.post("", body, header...); status != http.StatusNotFound { // no such method
		t.Errorf("got %d", status)
	}
}

// TestScriptComesLate: a script that is missing at the start is watched all the same.
func TestScriptComesLate(t *testing.T) {
	cfg := testConfig(t, "plain")
	script := filepath.Join(t.TempDir(), "server.py")
	cfg.Command, cfg.Watch = append(slices.Clone(cfg.Command), script), nil
	f := start(t, cfg)
	old := f.pid(f.open())

	for n, text := range []string{"one", "two"} {
		write(t, script, text)
		eventually(t, "the swap is told", func() bool { return f.swaps.Load() == int64(n+1) })
	}

	if now := f.pid(f.open()); now == old {
		t.Error("the new session is served by the old process")
	}
}

func TestWatched(t *testing.T) {
	t.Parallel()

	dir := t.TempDir()
	write(t, filepath.Join(dir, "server.py"), "")
	write(t, filepath.Join(dir, "bin", "run"), "")
	write(t, filepath.Join(dir, "notes.db"), "")
	write(t, filepath.Join(dir, "lib.py", "file"), "")

	if err := os.Chmod(filepath.Join(dir, "bin", "run"), 0o700); err != nil {
		t.Fatal(err)
	}

	for _, tt := range []struct {
		name string
		cfg  Config
		want []string
	}{
		{"program and script", Config{Command: []string{"./bin/run", "-u", "server.py", "bin", "none"}, Dir: dir}, []string{filepath.Join(dir, "bin/run"), filepath.Join(dir, "server.py")}},
		{"not deployed yet", Config{Command: []string{"./bin/run", "dist/index.js", "data.db"}, Dir: dir}, []string{filepath.Join(dir, "bin/run"), filepath.Join(dir, "dist/index.js")}},
		{"what it writes", Config{Command: []string{"./bin/run", "./bin/run", "--db", "notes.db", "lib.py"}, Dir: dir}, []string{filepath.Join(dir, "bin/run"), filepath.Join(dir, "bin/run")}},
		{"configured", Config{Command: []string{"x", "server.py"}, Dir: dir, Watch: []string{"src", "/abs"}}, []string{filepath.Join(dir, "src"), "/abs"}},
		{"off", Config{Command: []string{"./bin/run"}, Dir: dir, Watch: []string{}}, nil},
		{"not installed", Config{Command: []string{"no such program"}}, nil},
	} {
		if diff := cmp.Diff(tt.want, watched(&tt.cfg)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
	}
}
