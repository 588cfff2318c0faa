//go:build unix && replicas

package replicas

import (
	"context"
	"path/filepath"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// The commands that TestMain builds.
var sidecarPath, backendPath string

func TestMain(m *testing.M) {
	proc.Main(m, func(ctx context.Context, dir string) error {
		sidecarPath, backendPath = filepath.Join(dir, "mcp-sidecar"), filepath.Join(dir, "testbackend")
		return proc.Build(ctx, dir, proc.Sidecar, proc.Testbackend)
	}, nil)
}
