package stdio

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// lateOutput is how long output may still come after a process ended: somebody
// whom it left behind may keep the pipe open.
const lateOutput = time.Second

// launch starts the child process and everything that serves it.
func (p *process) launch() error {
	files, err := pipes()
	if err != nil {
		return err
	}

	p.cmd = &exec.Cmd{
		Args: p.b.cfg.Command, Env: environment(os.Environ(), p.b.cfg.Env), Dir: p.b.cfg.Dir, SysProcAttr: processAttr(),
		Stdin: files[0].read, Stdout: files[1].write, Stderr: files[2].write,
	}

	if p.cmd.Path, err = program(&p.b.cfg); err == nil {
		err = p.b.spawner.start(p.cmd)
	}

	for _, f := range []*os.File{files[0].read, files[1].write, files[2].write} {
		_ = f.Close() // the child has its own
	}

	stdout, stderr := files[1].read, files[2].read
	p.stdin = files[0].write

	if err != nil {
		for _, f := range []*os.File{p.stdin, stdout, stderr} {
			_ = f.Close()
		}

		return fmt.Errorf("starting the stdio server: %w", err)
	}

	p.log = p.log.With("pid", p.cmd.Process.Pid)
	p.log.Debug("the stdio server was started")

	go p.run(stdout, stderr)

	return nil
}

// run serves a child that was started until nothing of it is left.
func (p *process) run(stdout, stderr *os.File) {
	defer p.b.children.Done()

	said := newStderrLog(p.log)

	var pipes sync.WaitGroup

	pipes.Go(p.write)
	pipes.Go(func() { p.read(stdout) })
	pipes.Go(func() { said.copy(stderr) })

	p.supervise(stdout, stderr)
	pipes.Wait()

	_ = stdout.Close()
	_ = stderr.Close()

	p.report(said.tail())
}

// report logs how the child ended.
func (p *process) report(tail string) {
	p.mu.Lock()
	asked, pause := p.asked, p.pause
	p.mu.Unlock()

	if asked {
		p.log.Debug("the stdio server was stopped", "exit", p.cmd.ProcessState.String())
		return
	}

	p.log.Warn("the stdio server ended by itself", "exit", p.cmd.ProcessState.String(), "stderr", tail, "next_start_in", pause)
}

// supervise returns when the child, and all that it started, has ended.
func (p *process) supervise(stdout, stderr *os.File) {
	exited := make(chan struct{})

	go func() {
		_ = p.cmd.Wait() // how it ended is in ProcessState
		close(exited)
	}()

	unclaimed := time.NewTimer(p.b.cfg.StartTimeout)
	defer unclaimed.Stop()

	for running := true; running; {
		select {
		case <-exited:
			running = false
		case <-unclaimed.C:
			if !p.b.claimed(p) {
				p.log.Warn("the stdio server takes too long to start, or nobody waits for it any more", "timeout", p.b.cfg.StartTimeout)
				p.fail()
				p.halt()
			}
		case <-p.retiring:
			p.drain(exited)
			running = false
		case <-p.stopping:
			running = false
		}
	}

	p.end(exited)

	// Whoever it left behind has no reader any more. The group still has its id
	// while somebody is in it, and ids aren't used again at once.
	kill(p.cmd.Process.Pid)

	for _, f := range []*os.File{stdout, stderr} {
		_ = f.SetReadDeadline(time.Now().Add(lateOutput))
	}
}

// drain waits until the requests that run are done, within bounds.
func (p *process) drain(exited <-chan struct{}) {
	t := time.NewTimer(p.b.cfg.Drain)
	defer t.Stop()

	select {
	case <-exited:
	case <-p.idle:
	case <-p.stopping:
	case <-t.C:
		p.log.Warn("requests to the replaced stdio server take too long and are broken off", "timeout", p.b.cfg.Drain)
	}

	p.halt()
}

// end ends the child as MCP 2025-11-25 "Lifecycle: Shutdown, stdio" describes.
func (p *process) end(exited <-chan struct{}) {
	_ = p.stdin.Close()

	if wait(exited, p.b.cfg.StopGrace) {
		return
	}

	terminate(p.cmd.Process.Pid)

	if wait(exited, p.b.cfg.StopGrace) {
		return
	}

	p.log.Warn("the stdio server doesn't end, killing it")
	kill(p.cmd.Process.Pid)
	<-exited
}

// write writes what is sent, one line after the other.
func (p *process) write() {
	for {
		select {
		case <-p.gone:
			return
		case o := <-p.lines:
			if !p.begin(o) {
				continue
			}

			n, err := p.stdin.Write(o.line)
			if err == nil {
				continue
			}

			p.broken(o.wire, n > 0)
		}
	}
}

// begin takes note that a line is being written. It returns false if nobody wants
// that any more.
func (p *process) begin(o outgoing) bool {
	p.mu.Lock()
	defer p.mu.Unlock()

	pd := p.pending[o.wire]

	switch {
	case o.wire == 0:
		return true
	case pd == nil:
		return false // cancelled
	case o.x != nil && o.x.isGone():
		p.drop(o.wire)
		return false
	}

	pd.written = true

	if o.x != nil {
		o.x.begun++
	}

	return true
}

// broken takes note that the process doesn't read any more. What it has said
// before is still read.
func (p *process) broken(wire int64, some bool) {
	p.mu.Lock()
	p.closed = true

	if pd := p.pending[wire]; pd != nil && !some {
		pd.written = false

		if pd.x != nil {
			pd.x.begun--
		}
	}
	p.mu.Unlock()

	p.halt()
}

// read reads what the process says until it has nothing more to say.
func (p *process) read(stdout io.Reader) {
	in := newLineReader(stdout, p.b.cfg.MaxMessage)

	for {
		l, err := in.next()
		if err != nil {
			if errors.Is(err, errTooLong) {
				p.log.Error("the stdio server wrote a message that is larger than allowed, ending it", "limit", p.b.cfg.MaxMessage)
			}

			break
		}

		p.receive(l)
	}

	p.fail()
	p.halt()
}
