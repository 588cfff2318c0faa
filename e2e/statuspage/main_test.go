//go:build unix

// Package statuspage looks at the status page in a real browser, while a real
// sidecar carries its clients over real swaps. It is a module of its own, so that
// the driver of the browser is no dependency of the sidecar.
//
// Pictures of the page are left in dist/statuspage.
package statuspage

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// bin is where TestMain puts the commands, pictures where pictures go. here is the
// directory of this package, where the tests don't run.
var bin, pictures, here string

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := runAll(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func runAll(m *testing.M) (int, error) {
	var err error
	if bin, err = os.MkdirTemp("", "mcp-sidecar-page-*"); err != nil {
		return 1, err
	}
	defer os.RemoveAll(bin)
	if here, err = os.Getwd(); err != nil {
		return 1, err
	}
	// From the sidecar's own module, with the versions that it is made with.
	if err := os.Chdir("../.."); err != nil {
		return 1, err
	}
	if err := proc.Build(context.Background(), bin, "./cmd/mcp-sidecar", "./e2e/testbackend"); err != nil {
		return 1, err
	}
	if pictures, err = filepath.Abs("dist/statuspage"); err != nil {
		return 1, err
	}
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return 1, err
	}
	return m.Run(), nil
}
