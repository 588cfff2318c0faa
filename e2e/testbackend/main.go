// Command testbackend is an MCP server for end-to-end tests: a real process that
// can be strict, slow to start, forgetful and replaced, and that keeps a journal
// of what it executed. Its first line on standard output is the address that it
// listens on (not with -mode stdio, where standard output is the protocol's).
//
// SIGTERM stops it gracefully, SIGUSR1 makes it offer the next tools: the file of
// -tools as it is now, or else those of the other version. Over HTTP there are
//
//	GET  /health                      200, even while the MCP endpoint is unavailable
//	POST /admin/tools?version=v2      offer other tools
//	POST /admin/list_changed?n=200    send n notices without any change
//	GET  /admin/sessions              the number of sessions that it knows
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/mark3labs/mcp-go/server"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// options are the command's flags.
type options struct {
	listen, path, mode           string
	tools, version               string
	strict                       bool
	unknownSession               string
	closed, unavailable, empty   time.Duration
	unavailableStatus            int
	journal, pidFile, identity   string
	slow                         time.Duration
	pageSize                     int
	listChanged, notifyOnList    bool
	stream                       bool
	idleTimeout, heartbeat, term time.Duration
}

func parse(args []string, stderr io.Writer) (options, error) {
	var o options
	f := flag.NewFlagSet("testbackend", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&o.listen, "listen", "127.0.0.1:0", "`address` to listen on")
	f.StringVar(&o.path, "path", "/mcp", "path of the MCP endpoint")
	f.StringVar(&o.mode, "mode", "stateful", "stateful, stateless, default (ids, but none checked), modern-only, sse or stdio")
	f.StringVar(&o.tools, "tools", "", "`file` with a JSON array of tools, instead of -version")
	f.StringVar(&o.version, "version", "v1", "v1, v1b (the same tools, written otherwise) or v2")
	f.BoolVar(&o.strict, "reject-until-initialized", false, "refuse every request of a session before notifications/initialized")
	f.StringVar(&o.unknownSession, "unknown-session", "", "how an unknown session is answered: 404, 400, 401, 503 or 200error (default as mcp-go does)")
	f.DurationVar(&o.closed, "closed", 0, "how long the port stays closed at the start")
	f.DurationVar(&o.unavailable, "unavailable", 0, "how long the MCP endpoint answers -unavailable-status after that")
	f.IntVar(&o.unavailableStatus, "unavailable-status", http.StatusServiceUnavailable, "HTTP status of that answer")
	f.DurationVar(&o.empty, "empty", 0, "how long there are no tools after that")
	f.StringVar(&o.journal, "journal", "", "`file` to append a JSON line to for everything executed")
	f.StringVar(&o.pidFile, "pid-file", "", "`file` to write the process id to once it listens")
	f.StringVar(&o.identity, "identity-header", "", "response `header` with an id of this process")
	f.DurationVar(&o.slow, "slow", 0, "how long the tools slow, transfer and progress take")
	f.IntVar(&o.pageSize, "page-size", 0, "tools in one page of tools/list (default all)")
	f.BoolVar(&o.listChanged, "list-changed", true, "declare tools.listChanged, and send it")
	f.BoolVar(&o.notifyOnList, "notify-on-list", false, "answer every tools/list with a notice that the tools changed")
	f.BoolVar(&o.stream, "stream", true, "offer the GET stream")
	f.DurationVar(&o.idleTimeout, "idle-timeout", 0, "close idle connections after this time")
	f.DurationVar(&o.heartbeat, "heartbeat", 0, "ping on the GET stream at this interval")
	f.DurationVar(&o.term, "grace", 10*time.Second, "how long calls may finish after SIGTERM")
	if err := f.Parse(args); err != nil {
		return options{}, err
	}
	if f.NArg() > 0 {
		return options{}, fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	return o, o.validate()
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "testbackend:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to clean up
	}
}

// run serves until ctx ends, and then lets running calls finish.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	log, err := journal.Open(o.journal)
	if err != nil {
		return err
	}
	defer log.Close()
	b, err := newBackend(o, log)
	if err != nil {
		return err
	}
	next := make(chan os.Signal, 1)
	signal.Notify(next, syscall.SIGUSR1)
	defer signal.Stop(next)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go b.follow(ctx, next)

	if o.mode == modeStdio {
		if err := b.phases(ctx); err != nil {
			return err
		}
		err := server.NewStdioServer(b.mcp).Listen(ctx, stdin, stdout)
		if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
			return nil
		}
		return err
	}
	return b.serve(ctx, stdout)
}

// serve goes through the phases of a start, and serves HTTP.
func (b *backend) serve(ctx context.Context, stdout io.Writer) error {
	if !sleep(ctx, b.o.closed) {
		return nil
	}
	if b.o.unavailable+b.o.empty == 0 {
		if err := b.phases(ctx); err != nil {
			return err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", b.o.listen)
	if err != nil {
		return fmt.Errorf("listening: %w", err)
	}
	if b.o.pidFile != "" {
		if err := os.WriteFile(b.o.pidFile, fmt.Appendln(nil, os.Getpid()), 0o600); err != nil {
			return fmt.Errorf("writing the pid file: %w", err)
		}
	}
	fmt.Fprintln(stdout, listener.Addr())

	// Streams end when the process is told to stop; calls may finish.
	stopping := make(chan struct{})
	s := &http.Server{
		Handler:           b.handler(stopping),
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       b.o.idleTimeout,
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Serve(listener) }()
	if b.o.unavailable+b.o.empty > 0 {
		go func() { _ = b.phases(ctx) }()
	}
	select {
	case err := <-failed:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	close(stopping)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), b.o.term)
	defer cancel()
	if err := s.Shutdown(grace); err != nil {
		_ = s.Close()
	}
	return nil
}

// sleep waits, and reports whether it did so to the end.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}
