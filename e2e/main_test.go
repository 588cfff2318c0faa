//go:build unix

// Package e2e tests the sidecar as it is used: the built command between real
// backends, which are killed and replaced, and an agent server. It looks at what
// comes out only: HTTP answers, the backends' journal, what the agent server was
// asked to do, the admin API, metrics and exit codes.
package e2e

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

// The commands that TestMain builds.
var sidecarPath, backendPath string

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
	// The tests wait more than they work. Many at once are quicker than one for each core.
	if !isSet("test.parallel") {
		if err := flag.Set("test.parallel", "8"); err != nil {
			return 1, err
		}
	}
	dir, err := os.MkdirTemp("", "mcp-sidecar-e2e-*")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	ctx := context.Background()
	var race []string
	if raceEnabled { // data races of the sidecar are found too
		race = []string{"-race"}
	}
	if err := proc.Build(ctx, dir, append(race, "github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar")...); err != nil {
		return 1, err
	}
	if err := proc.Build(ctx, dir, "github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend"); err != nil {
		return 1, err
	}
	sidecarPath, backendPath = filepath.Join(dir, "mcp-sidecar"), filepath.Join(dir, "testbackend")
	if code = m.Run(); code == 0 {
		err = goleak.Find()
	}
	return code, err
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
