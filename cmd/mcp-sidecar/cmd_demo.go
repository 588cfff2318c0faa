package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/demo"
)

// demoCmd shows a redeployment in one terminal.
type demoCmd struct {
	Stateless     bool `env:"-" help:"Use a backend that keeps no sessions."`
	Conversations int  `env:"-" default:"3" placeholder:"N" help:"How many conversations to open (default 3)."`
}

// Run implements the command.
func (d *demoCmd) Run(ctx context.Context, con console) error {
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding this program, to start it again: %w", err)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return demo.Run(ctx, demo.Config{Executable: exe, Conversations: d.Conversations, Stateless: d.Stateless, Out: con.stdout})
}

// demoBackendCmd is the backend's process of the demo.
type demoBackendCmd struct {
	Version   string `env:"-" default:"v1"`
	Listen    string `env:"-" default:"127.0.0.1:0"`
	Stateless bool   `env:"-"`
}

// Run implements the command.
func (d *demoBackendCmd) Run(ctx context.Context, con console) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	return demo.ServeBackend(ctx, demo.BackendConfig{Version: d.Version, Listen: d.Listen, Stateless: d.Stateless}, con.stdout)
}
