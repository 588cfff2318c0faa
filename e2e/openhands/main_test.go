//go:build openhands && unix

package openhands

import (
	"context"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// sidecarPath is the command that TestMain builds.
var sidecarPath string

func TestMain(m *testing.M) {
	proc.Main(m, func(ctx context.Context, dir string) error {
		sidecarPath = filepath.Join(dir, "mcp-sidecar")
		return proc.Build(ctx, dir, proc.Sidecar)
	}, func() error { return goleak.Find() })
}
