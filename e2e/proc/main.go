//go:build unix

package proc

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"
)

// The packages of the commands that suites build.
const (
	Sidecar     = "github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar"
	Testbackend = "github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend"
)

// Main is the TestMain of a suite that needs commands. It has build put them into
// a directory that lasts as long as the tests, runs these, and then check, unless
// that is nil, if they have passed. It ends the process.
func Main(m *testing.M, build func(ctx context.Context, dir string) error, check func() error) {
	flag.Parse()
	code, err := run(m, build, check)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M, build func(context.Context, string) error, check func() error) (code int, err error) {
	dir, err := os.MkdirTemp("", "mcp-sidecar-*")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	if err := build(context.Background(), dir); err != nil {
		return 1, err
	}
	if code = m.Run(); code == 0 && check != nil {
		err = check()
	}
	return code, err
}
