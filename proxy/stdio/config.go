package stdio

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"
)

// Config says what to run and within which bounds. Start from [DefaultConfig].
type Config struct {
	// Command is the program and its arguments. A program without a slash is
	// looked for in PATH; a relative one starts at Dir.
	Command []string
	// Env is added to the environment of this process, from which everything that
	// begins with MCP_SIDECAR_ is left out.
	Env map[string]string
	// Dir is the working directory; empty for the one of this process.
	Dir string
	// Shared serves all sessions by one process.
	Shared bool
	// Watch lists files and directories whose change replaces the processes;
	// relative ones start at Dir. In directories, hidden files and what
	// interpreters leave behind don't count. If nil, these are the program and
	// those of its arguments that are scripts, also ones that aren't there yet, or
	// executable; empty turns it off.
	Watch []string

	// BackoffMin and BackoffMax bound the time after a failed start in which none
	// is tried.
	BackoffMin, BackoffMax time.Duration
	// StartTimeout is how long a new process may take to answer initialize and to
	// be taken by a session.
	StartTimeout time.Duration
	// StopGrace is how long a process may take to end after its input was closed,
	// and again after SIGTERM. Then it is killed.
	StopGrace time.Duration
	// Drain is how long requests may run on after the watched files changed.
	Drain time.Duration
	// MaxMessage bounds a message in bytes, in both directions.
	MaxMessage int
	// MaxProcesses bounds the processes that serve. Idle sessions without a
	// stream make room, the one first that was idle longest. While processes are
	// being replaced or stopped there are more for a moment.
	MaxProcesses int

	// Version is what the bridge calls itself to a shared process, besides
	// mcp-sidecar.
	Version string
}

// DefaultConfig returns the defaults; Command is still to be set.
func DefaultConfig() Config {
	return Config{
		BackoffMin:   100 * time.Millisecond,
		BackoffMax:   30 * time.Second,
		StartTimeout: 2 * time.Minute,
		StopGrace:    2 * time.Second,
		Drain:        30 * time.Second,
		MaxMessage:   16 << 20,
		MaxProcesses: 100,
		Version:      "dev",
	}
}

// validate returns every problem of the configuration.
func (c *Config) validate() error {
	var errs []error

	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if len(c.Command) == 0 || c.Command[0] == "" {
		bad("command: must name the program that serves MCP on its standard input and output")
	}

	for name := range c.Env {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			bad("environment: %q can't be the name of a variable", name)
		}
	}

	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"backoff min", c.BackoffMin},
		{"backoff max", c.BackoffMax},
		{"start timeout", c.StartTimeout},
		{"stop grace", c.StopGrace},
		{"drain", c.Drain},
	} {
		if d.value <= 0 {
			bad("%s: must be more than 0, not %s", d.name, d.value)
		}
	}

	if c.BackoffMin > c.BackoffMax {
		bad("backoff min: must not be more than backoff max (%s)", c.BackoffMax)
	}

	if c.MaxMessage <= 0 {
		bad("max message: must be more than 0, not %d", c.MaxMessage)
	}

	if c.MaxProcesses <= 0 {
		bad("max processes: must be more than 0, not %d", c.MaxProcesses)
	}

	return errors.Join(errs...)
}

// Deps are what a [Bridge] is given. Everything is optional.
type Deps struct {
	Logger *slog.Logger

	// OnSwap is told that the processes are being replaced, or that the common
	// process ended by itself: a reason to look at what the server offers now. It
	// is called from several goroutines and must not block.
	OnSwap func()
}
