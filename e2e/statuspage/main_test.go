//go:build unix

// Package statuspage looks at the status page in a real browser, while a real
// sidecar carries its clients over real swaps. It is a module of its own, so that
// the driver of the browser is no dependency of the sidecar.
//
// Pictures of the page are left in dist/statuspage.
package statuspage

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// bin is where TestMain puts the commands, pictures where pictures go. here is the
// directory of this package, where the tests don't run.
var bin, pictures, here string

func TestMain(m *testing.M) {
	proc.Main(m, func(ctx context.Context, dir string) (err error) {
		bin = dir
		if here, err = os.Getwd(); err != nil {
			return err
		}
		// From the sidecar's own module, with the versions that it is made with.
		if err := os.Chdir("../.."); err != nil {
			return err
		}
		if pictures, err = filepath.Abs("dist/statuspage"); err != nil {
			return err
		}
		return errors.Join(os.MkdirAll(pictures, 0o755), proc.Build(ctx, dir, proc.Sidecar, proc.Testbackend))
	}, nil)
}
