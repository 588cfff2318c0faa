//go:build unix

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// startError says why the proxy didn't start.
type startError struct {
	error
	output string // the last that it wrote, for who started it
}

// setupError says why nothing can be tested.
type setupError struct{ error }

// world is what a scenario has: a backend that can be replaced, and the proxy before it.
type world struct {
	o       *options
	url     string // of the proxy's endpoint
	addr    string // of the backend
	journal string
	args    []string // of every backend
	backend *process
	proxy   *process
	release []func()
}

// open starts a backend with version v1 and these flags, then the proxy, and waits until that serves.
func (o *options) open(ctx context.Context, dir string, args ...string) (*world, error) {
	w := &world{o: o, journal: filepath.Join(dir, "journal"), args: args}
	scratch := filepath.Join(dir, "proxy")
	if err := os.Mkdir(scratch, 0o700); err != nil {
		return w, err
	}
	command, err := w.place(scratch)
	if err != nil {
		return w, err
	}
	if err := w.start(ctx, "v1"); err != nil {
		return w, err
	}
	if w.proxy, err = launch(command[0], command[1:]...); err != nil {
		return w, startError{error: fmt.Errorf("the proxy didn't start: %w", err)}
	}
	if err := w.await(ctx); err != nil {
		return w, startError{
			error:  fmt.Errorf("the proxy didn't start: %w", err),
			output: fmt.Sprintf("\nThe last that %s wrote:\n%s", filepath.Base(command[0]), w.proxy.output()),
		}
	}
	pass(ctx, o.Settle)
	return w, nil
}

// place chooses the addresses, and returns the proxy's command with them.
func (w *world) place(scratch string) ([]string, error) {
	listen, release, err := proc.Reserve()
	if err != nil {
		return nil, err
	}
	w.release = append(w.release, release)
	if w.addr = w.o.Backend; w.addr == "" {
		if w.addr, release, err = proc.Reserve(); err != nil {
			return nil, err
		}
		w.release = append(w.release, release)
	}
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return nil, err
	}
	names := strings.NewReplacer("{listen}", listen, "{host}", host, "{port}", port, "{backend}", w.addr, "{dir}", scratch)
	w.url = names.Replace(w.o.URL)
	command := slices.Clone(w.o.Command)
	for i := range command {
		command[i] = names.Replace(command[i])
	}
	u, err := url.Parse(w.url)
	if err != nil || u.Host == "" {
		return nil, usageError{fmt.Errorf("--url %s is not a URL with a host", w.url)}
	}
	if c, err := net.DialTimeout("tcp", u.Host, time.Second); err == nil {
		_ = c.Close()
		return nil, startError{error: fmt.Errorf("the proxy can't start: somebody listens on %s already", u.Host)}
	}
	return command, nil
}

// await waits until a client can list the tools through the proxy.
func (w *world) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, w.o.Start)
	defer cancel()
	var last error
	for ctx.Err() == nil {
		if w.proxy.ended() {
			return fmt.Errorf("its command ended (%s)", w.proxy.cmd.ProcessState)
		}
		one, cancel := context.WithTimeout(ctx, 15*time.Second)
		c, err := connect(one, w.url)
		if err == nil {
			_, err = c.list(one)
		}
		c.close(ctx)
		cancel()
		if err == nil {
			return nil
		}
		last = err
		pass(ctx, 50*time.Millisecond)
	}
	if errors.Is(context.Cause(ctx), context.Canceled) {
		return ctx.Err()
	}
	return fmt.Errorf("no client could list tools at %s within %s: %w", w.o.URL, w.o.Start, last)
}

// start starts a process of the backend and waits until it listens.
func (w *world) start(ctx context.Context, version string) error {
	args := slices.Concat([]string{"-listen", w.addr, "-journal", w.journal, "-version", version}, w.args)
	p, err := launch(w.o.Testbackend, args...)
	if err != nil {
		return setupError{fmt.Errorf("starting the test backend: %w", err)}
	}
	w.backend = p
	_, port, _ := net.SplitHostPort(w.addr) // its first line is its address
	err = eventually(ctx, w.o.Start, "the test backend to listen", func() bool {
		first, _, _ := strings.Cut(strings.TrimSpace(p.output()), "\n")
		return p.ended() || strings.HasSuffix(first, ":"+port)
	})
	if err == nil && p.ended() {
		err = setupError{fmt.Errorf("the test backend ended: %s", strings.TrimSpace(p.output()))}
	}
	return err
}

// swap replaces the backend by a process with this version, at once.
func (w *world) swap(ctx context.Context, version string) error {
	w.backend.kill()
	return w.start(ctx, version)
}

// admin asks the running backend for something, such as list_changed.
func (w *world) admin(ctx context.Context, what string) error {
	ctx, cancel := context.WithTimeout(ctx, w.o.Patience)
	defer cancel()
	return post(ctx, "http://"+w.addr+"/admin/"+what)
}

// entries returns what the running backend wrote into the journal, or with all set what all of them did.
func (w *world) entries(all bool) ([]journal.Entry, error) {
	entries, err := journal.Read(w.journal)
	return slices.DeleteFunc(entries, func(e journal.Entry) bool { return !all && e.PID != w.backend.cmd.Process.Pid }), err
}

// ran returns how often a tool was begun, by all processes.
func (w *world) ran(tool string) int {
	entries, err := w.entries(true)
	if err != nil {
		return 0
	}
	n := 0
	for _, e := range entries {
		if e.Tool == tool && e.Phase == journal.Begin {
			n++
		}
	}
	return n
}

// close ends everything.
func (w *world) close() {
	if w.proxy != nil {
		w.proxy.terminate()
	}
	if w.backend != nil {
		w.backend.kill()
	}
	for _, release := range w.release {
		release()
	}
}
