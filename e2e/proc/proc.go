//go:build unix

// Package proc starts and stops real processes in end-to-end tests. A process
// ends with its test; what it wrote is logged when the test failed.
package proc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Patience is how long a test waits for what should happen soon.
const Patience = 30 * time.Second

// Build runs go build with the given arguments (flags, then packages) and puts
// the commands into dir under their usual names. It is meant for TestMain.
func Build(ctx context.Context, dir string, args ...string) error {
	args = append([]string{"build", "-o", dir + string(filepath.Separator)}, args...)
	out, err := exec.CommandContext(ctx, "go", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}

// Process is a process that a test started.
type Process struct {
	tb   testing.TB
	name string
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu    sync.Mutex
	out   bytes.Buffer // everything that it wrote, in the order of arrival
	lines []string     // of its standard output
	more  chan struct{}
}

// Start starts a command, and kills it when the test ends.
func Start(tb testing.TB, path string, args ...string) *Process {
	tb.Helper()
	return StartWith(tb, exec.Command(path, args...))
}

// StartWith starts a command that the caller made, for example with an
// environment or a directory of its own. Its outputs must not be set.
func StartWith(tb testing.TB, cmd *exec.Cmd) *Process {
	tb.Helper()
	p := &Process{
		tb: tb, name: filepath.Base(cmd.Path), cmd: cmd,
		done: make(chan struct{}), more: make(chan struct{}),
	}
	cmd.Stdout, cmd.Stderr = &output{p: p, lines: true}, &output{p: p}
	cmd.WaitDelay = time.Second // a child of the process may hold its outputs open
	if err := cmd.Start(); err != nil {
		tb.Fatalf("starting %s: %v", p.name, err)
	}
	go func() {
		_ = cmd.Wait() // the exit code says how it ended
		close(p.done)
	}()
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() {
			tb.Logf("output of %s (pid %d):\n%s", p.name, p.PID(), p.Output())
		}
	})
	return p
}

// output keeps what the process writes to one of its outputs.
type output struct {
	p       *Process
	lines   bool   // it is the standard output
	partial []byte // of a line that hasn't ended yet
}

// Write implements io.Writer.
func (o *output) Write(b []byte) (int, error) {
	p := o.p
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(b)
	if !o.lines {
		return len(b), nil
	}
	o.partial = append(o.partial, b...)
	for {
		line, rest, ok := bytes.Cut(o.partial, []byte("\n"))
		if !ok {
			break
		}
		p.lines = append(p.lines, string(bytes.TrimRight(line, "\r")))
		o.partial = rest
	}
	close(p.more)
	p.more = make(chan struct{})
	return len(b), nil
}

// PID returns the process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Output returns what the process has written so far, both outputs together.
func (p *Process) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// Lines returns the complete lines of standard output so far, without the first n.
func (p *Process) Lines(n int) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines[n:])
}

// Line waits for the first line of standard output that begins with prefix, and
// returns what follows the prefix. The test fails when there is none.
func (p *Process) Line(prefix string) string {
	p.tb.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	for ended := false; ; {
		p.mu.Lock()
		for _, line := range p.lines {
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				p.mu.Unlock()
				return rest
			}
		}
		more := p.more
		p.mu.Unlock()
		if ended {
			p.tb.Fatalf("%s ended without a line that begins with %q", p.name, prefix)
		}
		select {
		case <-more:
		case <-p.done:
			ended = true
		case <-deadline.C:
			p.tb.Fatalf("%s wrote no line that begins with %q", p.name, prefix)
		}
	}
}

// Addr waits for the first line of standard output, which commands that listen
// for tests use for their address.
func (p *Process) Addr() string {
	p.tb.Helper()
	return p.Line("")
}

// Signal sends a signal, unless the process has ended.
func (p *Process) Signal(signal os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.tb.Errorf("sending %v to %s: %v", signal, p.name, err)
	}
}

// Kill ends the process at once, stopped or not, and waits until it has ended.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.done
}

// Terminate asks the process to stop, waits until it has ended and returns its
// exit code.
func (p *Process) Terminate() int {
	p.tb.Helper()
	p.Signal(syscall.SIGTERM)
	return p.Wait()
}

// Freeze stops the process's execution, as SIGSTOP does, until Thaw.
func (p *Process) Freeze() { p.Signal(syscall.SIGSTOP) }

// Thaw lets a frozen process go on.
func (p *Process) Thaw() { p.Signal(syscall.SIGCONT) }

// Done is closed when the process has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// Wait waits until the process has ended and returns its exit code, -1 when a
// signal ended it. The test fails when that takes too long.
func (p *Process) Wait() int {
	p.tb.Helper()
	deadline := time.NewTimer(Patience)
	defer deadline.Stop()
	select {
	case <-p.done:
	case <-deadline.C:
		p.tb.Fatalf("%s doesn't end", p.name)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Eventually waits until ok holds, which it asks again and again, and fails the
// test when it doesn't in time.
func Eventually(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	Within(tb, Patience, what, ok)
}

// Within is Eventually with another patience, for what takes its time on a busy machine.
func Within(tb testing.TB, patience time.Duration, what string, ok func() bool) {
	tb.Helper()
	deadline := time.NewTimer(patience)
	defer deadline.Stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			tb.Fatalf("waited in vain for: %s", what)
		}
	}
}
