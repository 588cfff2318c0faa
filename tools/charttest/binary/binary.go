// Package binary builds the sidecar for tests, with the dependencies of its own module.
package binary

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// Build builds the command mcp-sidecar from the repository's root and returns its path, which is gone after the test.
func Build(tb testing.TB, repository string) string {
	tb.Helper()
	path := filepath.Join(tb.TempDir(), "mcp-sidecar")
	cmd := exec.CommandContext(tb.Context(), "go", "build", "-o", path, "./cmd/mcp-sidecar")
	cmd.Dir = repository
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("building the sidecar: %v\n%s", err, out)
	}
	return path
}
