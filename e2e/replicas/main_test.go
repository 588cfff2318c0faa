//go:build unix && replicas

package replicas

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// The commands that TestMain builds.
var sidecarPath, backendPath string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "mcp-sidecar-replicas-*")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := proc.Build(context.Background(), dir,
		"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar", "github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend"); err != nil {
		return 1, err
	}
	sidecarPath, backendPath = filepath.Join(dir, "mcp-sidecar"), filepath.Join(dir, "testbackend")
	return m.Run(), nil
}
