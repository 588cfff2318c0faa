// Package binary builds the sidecar for tests, with the dependencies of its own module.
package binary

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
)

// Build builds the command mcp-sidecar into a directory, from the repository at root, and returns its path.
func Build(ctx context.Context, root, dir string) (string, error) {
	path := filepath.Join(dir, "mcp-sidecar")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", path, "./cmd/mcp-sidecar")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the sidecar: %w\n%s", err, out)
	}
	return path, nil
}
