//go:build chaos && unix

package chaos

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// command is a server that the sidecar starts itself, from a script which is deployed again and again.
type command struct {
	place

	script string
	n      int // of the script
}

// newCommand makes a command, "shared" or not.
func (w *world) newCommand(name string) *command {
	c := &command{place: w.newPlace(name)}
	c.script = filepath.Join(filepath.Dir(c.journal), "server.sh")
	return c
}

func (c *command) config(n int) string {
	// With other arguments it is another command, whose processes take the place of the ones before.
	return fmt.Sprintf("transport: stdio\n    command: [/bin/sh, %s, %q]\n    shared: %t\n", c.script, strconv.Itoa(n/2), c.name == "shared")
}

// start deploys a version. What is in args comes before it.
func (c *command) start(version string, args ...string) {
	c.version = version
	c.n++
	c.w.time.note("%s: deploy %s %s", c.name, version, strings.Join(args, "; "))
	text := fmt.Sprintf("# %d\n%s\nexec %s -mode stdio -journal %s -version %s -slow 60ms\n",
		c.n, strings.Join(args, "\n"), backendPath, c.journal, version)
	next := c.script + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		c.w.t.Error(err)
	}
	if err := os.Rename(next, c.script); err != nil {
		c.w.t.Error(err)
	}
}

// wasEmpty implements server.
func (c *command) wasEmpty(time.Time) bool { return false }

// wasUnavailable implements server.
func (c *command) wasUnavailable(time.Time) bool { return false }

// change deploys the other version.
func (c *command) change() { c.start(c.other()) }

// waitLeft waits until the processes have ended: one may stay for the sidecar, and one for requests without a session.
func (c *command) waitLeft() {
	proc.Eventually(c.w.t, "the processes of "+c.name+" to end", func() bool { return len(c.processes()) <= 2 })
}

// processes are those that run.
func (c *command) processes() (pids []int) {
	if runtime.GOOS != "linux" {
		out, err := exec.Command("ps", "-A", "-o", "pid=,command=").Output()
		if err != nil {
			c.w.t.Errorf("listing processes: %v", err)
		}
		for line := range strings.Lines(string(out)) {
			pid, args, _ := strings.Cut(strings.TrimSpace(line), " ")
			if n, err := strconv.Atoi(pid); err == nil && c.owns(args) {
				pids = append(pids, n)
			}
		}
		return pids
	}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		c.w.t.Error(err)
	}
	for _, file := range files {
		args, err := os.ReadFile(file) // nothing of one that has ended
		if err != nil || !c.owns(string(args)) {
			continue
		}
		if n, err := strconv.Atoi(filepath.Base(filepath.Dir(file))); err == nil {
			pids = append(pids, n)
		}
	}
	return pids
}

// owns reports whether a process has these arguments because it is one of the command's.
func (c *command) owns(args string) bool {
	return strings.Contains(args, c.script) || strings.Contains(args, c.journal)
}

// signal sends a signal to so many of a hundred processes, and returns to which.
func (c *command) signal(percent int, s syscall.Signal) (pids []int) {
	for _, pid := range c.processes() {
		if c.rng.IntN(100) < percent && syscall.Kill(pid, s) == nil {
			pids = append(pids, pid)
		}
	}
	c.w.time.note("%s: %v to %d processes", c.name, s, len(pids))
	return pids
}

// torment lets the processes and their deployments fail until the time is over.
func (c *command) torment(until time.Time) {
	for time.Now().Before(until) {
		c.misfortune()
		pause := between(c.rng, 100*time.Millisecond, 2500*time.Millisecond)
		if c.rng.IntN(5) == 0 {
			pause = between(c.rng, 3*time.Second, 7*time.Second) // time to settle
		}
		time.Sleep(pause)
	}
}

// misfortune is one thing that happens.
func (c *command) misfortune() {
	percent := []int{20, 50, 100}[c.rng.IntN(3)]
	version := []string{"v1", "v2"}[c.rng.IntN(2)]
	switch n := c.rng.IntN(100); {
	case n < 20:
		c.signal(percent, syscall.SIGKILL)
	case n < 32:
		c.signal(percent, syscall.SIGTERM)
	case n < 36: // crash upon crash
		for range 2 + c.rng.IntN(4) {
			c.signal(100, syscall.SIGKILL)
			time.Sleep(between(c.rng, 0, 300*time.Millisecond))
		}
	case n < 50:
		d := between(c.rng, 50*time.Millisecond, 4*time.Second)
		frozen := c.signal(percent, syscall.SIGSTOP)
		if c.rng.IntN(3) == 0 {
			c.start(version)
		}
		time.Sleep(d)
		c.thaw(frozen)
	case n < 75:
		c.start(version, c.prelude()...)
	case n < 80: // one deployment after the other
		for range 2 + c.rng.IntN(3) {
			c.start([]string{"v1", "v2"}[c.rng.IntN(2)], c.prelude()...)
			time.Sleep(between(c.rng, 0, 400*time.Millisecond))
		}
	case n < 85: // nothing has changed
		now := time.Now()
		c.w.time.note("%s: touch", c.name)
		if err := os.Chtimes(c.script, now, now); err != nil {
			c.w.t.Error(err)
		}
	case n < 93: // it doesn't start, for longer than anybody waits or not
		c.start(version, "exit 1")
		if c.rng.IntN(2) == 0 {
			c.signal(percent, syscall.SIGKILL)
		}
		time.Sleep(between(c.rng, 0, holdCall+2*time.Second))
		c.start(version)
	default: // it is away while it is replaced
		c.w.time.note("%s: removed", c.name)
		if err := os.Remove(c.script); err != nil {
			c.w.t.Error(err)
		}
		if c.rng.IntN(2) == 0 {
			c.signal(percent, syscall.SIGKILL)
		}
		time.Sleep(between(c.rng, 0, 2*time.Second))
		c.start(version)
	}
}

// prelude is what a version may do before it serves.
func (c *command) prelude() (lines []string) {
	if c.rng.IntN(3) == 0 {
		lines = append(lines, "sleep "+strconv.FormatFloat(between(c.rng, 50*time.Millisecond, slowest).Seconds(), 'f', 3, 64))
	}
	if c.rng.IntN(3) == 0 { // some say hello where they mustn't
		lines = append(lines, "echo Server started")
	}
	return lines
}

// thaw lets processes go on, or ends them.
func (c *command) thaw(pids []int) {
	s := syscall.SIGCONT
	if c.rng.IntN(4) == 0 {
		s = syscall.SIGKILL
	}
	c.w.time.note("%s: %v to %d processes", c.name, s, len(pids))
	for _, pid := range pids {
		_ = syscall.Kill(pid, s) // it may have ended
	}
}
