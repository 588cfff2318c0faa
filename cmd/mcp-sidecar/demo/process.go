package demo

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"sync"
	"time"
)

// process is a child that the demo started. Its stderr is kept for the case that something goes wrong.
type process struct {
	cmd *exec.Cmd

	mu  sync.Mutex
	log bytes.Buffer
}

// maxLog bounds what is kept of a child's log; its end is worth more than its beginning.
const maxLog = 64 << 10

// Write keeps a piece of the log.
func (p *process) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log.Write(b)
	if n := p.log.Len() - maxLog; n > 0 {
		p.log.Next(n)
	}
	return len(b), nil
}

// lastLog returns the end of the log.
func (p *process) lastLog() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.log.String()
}

// startProcess starts this very program with other arguments. It is killed when ctx ends.
func startProcess(ctx context.Context, exe string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, exe, args...)}
	p.cmd.Stderr = p
	p.cmd.WaitDelay = time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s %s: %w", exe, args[0], err)
	}
	return p, nil
}

// startBackend starts a backend and returns once it listens.
func startBackend(ctx context.Context, exe string, cfg BackendConfig) (*process, error) {
	r, w := io.Pipe()
	defer r.Close()
	p := &process{cmd: exec.CommandContext(ctx, exe, "demo-backend",
		"--version", cfg.Version, "--listen", cfg.Listen, fmt.Sprintf("--stateless=%t", cfg.Stateless))}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = w, p, time.Second
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting the backend: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { r.CloseWithError(context.Cause(ctx)) })
	defer stop()
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		p.kill()
		return nil, fmt.Errorf("waiting for the backend to listen: %w\n%s", err, p.lastLog())
	}
	return p, nil
}

// kill ends the process without asking (SIGKILL) and waits until it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// freeAddresses returns n loopback addresses that nobody listens on, each another one.
func freeAddresses(ctx context.Context, n int) ([]string, error) {
	addrs := make([]string, 0, n)
	for range n {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("looking for a free port: %w", err)
		}
		defer l.Close() // when all are there: the same port must not come twice
		addrs = append(addrs, l.Addr().String())
	}
	return addrs, nil
}
