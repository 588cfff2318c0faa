//go:build soak && unix

package soak

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// The commands that TestMain builds.
var sidecarPath, backendPath string

func TestMain(m *testing.M) {
	proc.Main(m, func(ctx context.Context, dir string) error {
		sidecarPath, backendPath = filepath.Join(dir, "mcp-sidecar"), filepath.Join(dir, "testbackend")
		return errors.Join(proc.Build(ctx, dir, proc.Sidecar), proc.Build(ctx, dir, proc.Testbackend))
	}, func() error { return goleak.Find() })
}

// duration is how long the sidecar works.
func duration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SOAK_DURATION")
	if text == "" {
		return 10 * time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 20*time.Second {
		t.Fatalf("SOAK_DURATION=%s: want at least 20s", text)
	}
	return d
}
