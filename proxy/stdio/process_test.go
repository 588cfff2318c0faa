package stdio

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestDeathOfTheProcess(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()
	stream := f.listen(s)
	other := f.open()

	muted := make(chan error, 1)

	go func() {
		err := f.failing(t.Context(), s, toolCall("1", "mute"))
		muted <- err
	}()

	eventually(t, "the request runs", func() bool { return f.session(s).proc.busy() })

	if err := f.failing(t.Context(), s, toolCall("2", "die")); !errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}

	if err := <-muted; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}

	stream.end(io.ErrUnexpectedEOF)

	for _, body := range []string{toolCall("1", "pid"), `{"jsonrpc":"2.0","method":"notifications/x"}`} {
		if status, text := f.post(s, body); status != http.StatusNotFound || !strings.Contains(text, "-32001") {
			t.Errorf("got %d %s", status, text)
		}
	}

	f.pid(other)
	f.pid(f.open())

	if f.swaps.Load() != 0 {
		t.Error("one session's process was taken for all")
	}
}

func TestDeathInAnswer(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()
	file := filepath.Join(t.TempDir(), "go on")

	// The first of a batch dies with the second's notification told.
	resp, err := f.do(t.Context(), http.MethodPost, s, "["+toolCall("1", "notice", "method", "x")+","+toolCall("2", "wait", "file", file)+"]")
	if err != nil {
		t.Fatal(err)
	}

	defer func() { _ = resp.Body.Close() }()

	_ = f.failing(t.Context(), s, toolCall("3", "die"))

	if b, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) || !strings.Contains(string(b), `"method":"x"`) {
		t.Errorf("got %s, %v", b, err)
	}
}

// TestDeathInBatch: a batch of which the process has answered a part isn't sent to another one.
func TestDeathInBatch(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()
	p := f.session(s).proc
	never := filepath.Join(t.TempDir(), "never")
	// The process stops reading, the next line fills the pipe, and the last one stays here.
	batch := "[" + strings.Join([]string{
		toolCall("1", "pid"),
		`{"jsonrpc":"2.0","method":"x","params":{"name":"block","arguments":{"file":` + quoted(never) + `}}}`,
		`{"jsonrpc":"2.0","method":"x","params":{"x":"` + strings.Repeat("x", 1<<20) + `"}}`,
		toolCall("2", "pid"),
	}, ",") + "]"
	failed := make(chan error, 1)

	go func() { failed <- f.failing(t.Context(), s, batch) }()

	eventually(t, "the first call is answered", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()

		return p.next == 3 && len(p.pending) == 1 // with initialize
	})

	if err := syscall.Kill(p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	if err := <-failed; !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}
}

func TestBackoff(t *testing.T) {
	cfg := testConfig(t, "exit")
	cfg.BackoffMin, cfg.BackoffMax = time.Hour, time.Hour
	f := start(t, cfg)

	for range 5 {
		if err := f.failing(t.Context(), "", initRequest(initParams)); !errors.Is(err, ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	}

	eventually(t, "it is logged", func() bool { return strings.Contains(f.log.String(), "ended by itself") })

	if log := f.log.String(); strings.Count(log, "was started") != 1 || !strings.Contains(log, `stderr="cannot find the module"`) || !strings.Contains(log, `exit="exit status 3"`) {
		t.Error(log)
	}
}

func TestNoSuchCommand(t *testing.T) {
	cfg := testConfig(t, "")
	cfg.Command = []string{filepath.Join(t.TempDir(), "none")}
	f := start(t, cfg)

	for _, shared := range []bool{false, true} {
		f.cfg.Shared = shared

		eventually(t, "another try", func() bool {
			err := f.failing(t.Context(), "", initRequest(initParams))
			if !errors.Is(err, ErrUnavailable) {
				t.Fatal(err)
			}

			return errors.Is(err, os.ErrNotExist)
		})
	}

	f.stop()

	if n := strings.Count(f.log.String(), "can't be started"); n < 2 {
		t.Errorf("logged %d times", n)
	}
}

func TestSlowStart(t *testing.T) {
	cfg := testConfig(t, "plain")
	cfg.Env["STDIO_TEST_WAIT"] = filepath.Join(t.TempDir(), "ready")
	f := start(t, cfg)

	// Whoever gives up finds the same process again.
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)

		if err := f.failing(ctx, "", initRequest(initParams)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}

		cancel()
	}

	if err := os.WriteFile(cfg.Env["STDIO_TEST_WAIT"], nil, 0o600); err != nil {
		t.Fatal(err)
	}

	f.pid(f.open())

	if n := strings.Count(f.log.String(), "was started"); n != 1 {
		t.Errorf("%d were started", n)
	}
}

func TestStartTimeout(t *testing.T) {
	cfg := testConfig(t, "plain")
	cfg.Env["STDIO_TEST_WAIT"] = filepath.Join(t.TempDir(), "never")
	cfg.StartTimeout, cfg.StopGrace = 20*time.Millisecond, 20*time.Millisecond
	f := start(t, cfg)

	if err := f.failing(t.Context(), "", initRequest(initParams)); !errors.Is(err, ErrUnavailable) {
		t.Errorf("got %v", err)
	}

	f.stop()
	childless(t)
}

func TestStop(t *testing.T) {
	cfg := testConfig(t, "stubborn")
	cfg.StopGrace = 20 * time.Millisecond
	f := start(t, cfg)
	s, other := f.open(), f.open()
	pid := f.pid(s)

	child, err := strconv.Atoi(f.text(s, "child"))
	if err != nil {
		t.Fatal(err)
	}

	if got := f.status(http.MethodDelete, s); got != http.StatusOK {
		t.Errorf("got %d", got)
	}

	eventually(t, "process and child end", func() bool { return !alive(pid) && !alive(child) })

	if !strings.Contains(f.log.String(), "killing it") {
		t.Error("it ended without being killed")
	}

	pid = f.pid(other)
	f.stop()

	if alive(pid) {
		t.Error("it survived")
	}

	childless(t)
}

// TestKilledParent kills a process that runs a bridge. Its children have no chance
// to be told.
func TestKilledParent(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ends the children of a process that is killed")
	}

	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}

	parent := exec.CommandContext(t.Context(), exe)
	parent.Env = append(os.Environ(), modeEnv+"=parent")

	out, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}

	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}

	var answer struct {
		Result struct {
			PID int `json:"pid"`
		} `json:"result"`
	}

	if err := json.NewDecoder(out).Decode(&answer); err != nil {
		t.Error(err)
	}

	if err := parent.Process.Kill(); err != nil {
		t.Error(err)
	}

	_ = parent.Wait()

	eventually(t, "the child ends", func() bool { return !alive(answer.Result.PID) })
}

func TestChildrenOfTheDead(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()

	child, err := strconv.Atoi(f.text(s, "child"))
	if err != nil {
		t.Fatal(err)
	}

	// It keeps stdout open, and yet the death is noticed.
	if err := syscall.Kill(f.pid(s), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	eventually(t, "the session is unknown", func() bool { return f.session(s) == nil })
	eventually(t, "the child ends", func() bool { return !alive(child) })
}

func TestMaxProcesses(t *testing.T) {
	cfg := testConfig(t, "plain")
	cfg.MaxProcesses = 2
	f := start(t, cfg)
	first, second := f.open(), f.open()
	f.pid(first)

	// The second was idle longest.
	third := f.open()

	if status, _ := f.post(second, toolCall("1", "pid")); status != http.StatusNotFound {
		t.Errorf("got %d", status)
	}

	f.listen(first)

	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})

	go func() {
		defer close(done)

		_ = f.failing(ctx, third, toolCall("1", "mute"))
	}()

	eventually(t, "the third is busy", func() bool { return f.session(third).proc.busy() })

	if status, text := f.post("", initRequest(initParams)); status != http.StatusTooManyRequests || !strings.Contains(text, `"id":"init"`) {
		t.Errorf("got %d %s", status, text)
	}

	cancel()
	<-done
	f.open()
}

func TestStderr(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()
	f.text(s, "stderr", "line", strings.Repeat("x", 3*maxLogLine)+"\nsecond")
	eventually(t, "both lines are logged", func() bool { return strings.Contains(f.log.String(), "line=second") })

	if strings.Contains(f.log.String(), strings.Repeat("x", maxLogLine+1)) {
		t.Error("a line is too long")
	}

	f.text(s, "stderr", "line", strings.Repeat("again\n", 2*logBurst))
	f.stop()

	if n := strings.Count(f.log.String(), "line=again"); n < logBurst/2 || n > logBurst+logPerSecond || !strings.Contains(f.log.String(), "suppressed") {
		t.Errorf("logged %d lines", n)
	}
}
