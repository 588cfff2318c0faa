//go:build openhands && unix

package openhands

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// sidecarPath is the command that TestMain builds.
var sidecarPath string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "mcp-sidecar-openhands-*")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := proc.Build(context.Background(), dir, "github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar"); err != nil {
		return 1, err
	}
	sidecarPath = filepath.Join(dir, "mcp-sidecar")
	if code = m.Run(); code == 0 {
		err = goleak.Find()
	}
	return code, err
}
