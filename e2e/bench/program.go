package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const patience = 30 * time.Second

// clockTick is the unit of times in /proc/PID/stat: 100 Hz on every Linux that Go
// runs on.
const clockTick = 10 * time.Millisecond

// program is a process that is measured, with its children.
type program struct {
	name string
	addr string
	cmd  *exec.Cmd
	out  bytes.Buffer
	done chan struct{}
}

// start starts a program and waits until it listens.
func start(ctx context.Context, name, addr, path string, args ...string) (*program, error) {
	p, err := launch(ctx, name, addr, path, args...)
	if err != nil {
		return nil, err
	}

	return p, p.wait(ctx, "it doesn't listen", func() bool {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			_ = c.Close()
		}

		return err == nil
	})
}

// launch starts a program.
func launch(ctx context.Context, name, addr, path string, args ...string) (*program, error) {
	p := &program{name: name, addr: addr, cmd: exec.CommandContext(ctx, path, args...), done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = &p.out, &p.out
	p.cmd.Cancel = func() error { return p.cmd.Process.Signal(syscall.SIGTERM) }
	p.cmd.WaitDelay = 5 * time.Second

	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}

	go func() {
		defer close(p.done)

		_ = p.cmd.Wait()
	}()

	return p, nil
}

// wait waits until ok holds, which it asks every few milliseconds. In vain stops
// the program.
func (p *program) wait(ctx context.Context, vain string, ok func() bool) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()

	late := time.NewTimer(patience)
	defer late.Stop()

	for !ok() {
		select {
		case <-p.done:
			return fmt.Errorf("%s ended: %s", p.name, p.out.String())
		case <-late.C:
			p.stop()
			return fmt.Errorf("%s: %s: %s", p.name, vain, p.out.String())
		case <-ctx.Done():
			p.stop()
			return ctx.Err()
		case <-tick.C:
		}
	}

	return nil
}

// stop ends the program at once. Only nginx is asked, as its workers end with it.
func (p *program) stop() {
	if p.name == nameNginx {
		_ = p.cmd.Process.Signal(syscall.SIGTERM)

		select {
		case <-p.done:
			return
		case <-time.After(3 * time.Second):
		}
	}

	_ = p.cmd.Process.Kill()
	<-p.done
}

// pids are the process and its children.
func (p *program) pids() []int {
	pids := []int{p.cmd.Process.Pid}

	tasks, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pids[0]))
	for _, t := range tasks {
		b, _ := os.ReadFile(t)

		for f := range strings.FieldsSeq(string(b)) {
			if n, err := strconv.Atoi(f); err == nil {
				pids = append(pids, n)
			}
		}
	}

	return pids
}

// cpu is the processor time that the program has used.
func (p *program) cpu() (time.Duration, error) {
	var all time.Duration

	for _, pid := range p.pids() {
		b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return 0, err
		}

		// The name of the command may contain anything but ends with the last ')'.
		fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		if len(fields) < 13 {
			return 0, errors.New("/proc/PID/stat is not as expected")
		}

		for _, f := range fields[11:13] { // utime and stime
			n, err := strconv.ParseInt(f, 10, 64)
			if err != nil {
				return 0, err
			}

			all += time.Duration(n) * clockTick
		}
	}

	return all, nil
}

// memory reads VmHWM (the most that was resident at one time) or VmRSS, in KiB.
func (p *program) memory(what string) (kib int64) {
	for _, pid := range p.pids() {
		b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))

		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, what+":"); ok {
				n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				kib += n
			}
		}
	}

	return kib
}

// freeAddr is an address on which nobody listens.
func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()

	return l.Addr().String(), nil
}
