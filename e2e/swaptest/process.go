//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

const (
	keptOutput = 4 << 10         // bytes of what a process wrote last
	grace      = 5 * time.Second // for a process to end when it is asked to
)

// build builds the test backend into dir.
func build(ctx context.Context, dir string) (string, error) {
	if err := proc.Build(ctx, dir, proc.Testbackend); err != nil {
		return "", fmt.Errorf("building the test backend (run it from the project's tree, or name a built one with --testbackend): %w", err)
	}
	return filepath.Join(dir, filepath.Base(proc.Testbackend)), nil
}

// process is a process with all that it starts.
type process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed when it has ended

	mu  sync.Mutex
	out []byte // the last of it
}

// launch starts a command as the leader of a process group.
func launch(path string, args ...string) (*process, error) {
	p := &process{cmd: exec.Command(path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p, p
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = time.Second // a child may hold its outputs open
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	return p, nil
}

// Write implements io.Writer: it takes what the process writes.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out = append(p.out, b...)
	if n := len(p.out) - keptOutput; n > 0 {
		p.out = append(p.out[:0], p.out[n:]...)
	}
	return len(b), nil
}

// output returns what the process wrote last, indented.
func (p *process) output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	text := strings.TrimSpace(string(p.out))
	if text == "" {
		return "    (it wrote nothing)"
	}
	return "    " + strings.ReplaceAll(text, "\n", "\n    ")
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// kill ends the process at once.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// terminate asks the process to end, and kills it and all that it started when they don't.
func (p *process) terminate() {
	pid := p.cmd.Process.Pid
	children := descendants(pid) // some begin a group of their own
	_ = syscall.Kill(-pid, syscall.SIGTERM)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-p.done:
	case <-timer.C:
	}
	p.kill()
	for _, child := range children {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
}

// descendants are the children of a process, their children and so on, where the system has them in /proc.
func descendants(pid int) []int {
	var all []int
	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	for _, task := range tasks {
		text, _ := os.ReadFile(task)
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				all = append(append(all, child), descendants(child)...)
			}
		}
	}
	return all
}

// eventually asks again and again whether ok holds, and returns an error when it doesn't within d.
func eventually(ctx context.Context, d time.Duration, what string, ok func() bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, d, errors.New("waited "+d.String()+" in vain for "+what))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// pass lets time pass that is part of what is tested.
func pass(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
