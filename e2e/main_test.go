//go:build unix

// Package e2e tests the sidecar as it is used: the built command between real
// backends, which are killed and replaced, and an agent server. It looks at what
// comes out only: HTTP answers, the backends' journal, what the agent server was
// asked to do, the admin API, metrics and exit codes.
package e2e

import (
	"context"
	"errors"
	"flag"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// The commands that TestMain builds.
var sidecarPath, backendPath string

func TestMain(m *testing.M) {
	proc.Main(m, func(ctx context.Context, dir string) error {
		// The tests wait more than they work. Many at once are quicker than one for each core.
		if !isSet("test.parallel") {
			if err := flag.Set("test.parallel", "8"); err != nil {
				return err
			}
		}
		var race []string
		if raceEnabled { // data races of the sidecar are found too
			race = []string{"-race"}
		}
		sidecarPath, backendPath = filepath.Join(dir, "mcp-sidecar"), filepath.Join(dir, "testbackend")
		return errors.Join(proc.Build(ctx, dir, append(race, proc.Sidecar)...), proc.Build(ctx, dir, proc.Testbackend))
	}, func() error { return goleak.Find() })
}

func isSet(name string) bool {
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == name })
	return set
}

// long leaves a test out of the quick ones.
func long(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("not with -short")
	}
}
