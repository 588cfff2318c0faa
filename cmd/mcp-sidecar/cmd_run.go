package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// runCmd runs the sidecar.
type runCmd struct {
	configFlags
}

// Help explains the command.
func (*runCmd) Help() string {
	return "A backend is all that is needed: mcp-sidecar run --upstream http://127.0.0.1:9000/mcp"
}

// Run implements the command.
func (r *runCmd) Run(ctx context.Context, con console, o origins) error {
	cfg, err := r.load(o)
	if err != nil {
		return err
	}
	level := &slog.LevelVar{}
	level.Set(cfg.LogLevel)
	a := newApp(cfg, appOptions{
		Logger: newLogger(con.stderr, cfg.LogFormat, level, con.getenv), Level: level,
		Load: func() (*config.Config, error) { return r.load(o) }, File: r.Config,
	})
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt, syscall.SIGHUP)
	defer signal.Stop(signals)
	return supervise(ctx, a, signals)
}

// supervise runs an app until it fails, ctx ends or a signal ends it. A second
// signal cuts the end short.
func supervise(ctx context.Context, a *app, signals <-chan os.Signal) error {
	started := make(chan error, 1)
	go func() { started <- a.start(ctx) }()
	var failure error
	hurry := false
wait:
	for {
		select {
		case err := <-started:
			if err != nil {
				return err
			}
			started = nil
		case failure = <-a.failed:
			a.log.Error("failed", "err", failure)
			hurry = true
			break wait
		case <-ctx.Done():
			break wait
		case s := <-signals:
			if s == syscall.SIGHUP {
				if started == nil {
					_ = a.Reload(ctx) // it has logged what is wrong
				}
				continue
			}
			a.log.Info("signal received", "signal", s.String())
			hurry = s == os.Interrupt // somebody at a terminal waits
			break wait
		}
	}
	delay := a.drainDelay()
	if hurry {
		delay = 0
	}
	stopCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.stopTimeout(delay))
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- a.stop(stopCtx, delay) }()
	for {
		select {
		case err := <-stopped:
			return errors.Join(failure, err)
		case s := <-signals:
			if s != syscall.SIGHUP {
				return fmt.Errorf("ended at once by a second signal (%s)", s)
			}
		}
	}
}
