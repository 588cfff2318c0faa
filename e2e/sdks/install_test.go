//go:build sdks && unix

package sdks

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/install"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// programs is everything that the tests start: the sidecar, and one command line for each client and backend.
type programs struct {
	sidecar string
	clients map[string][]string
	servers map[string][]string
}

// prepare builds the Go programs, and puts the packages of the others into the user's cache.
func prepare(t *testing.T) programs {
	t.Helper()
	npm, node := proc.Need(t, "npm"), proc.Need(t, "node")
	python := install.Python(t, "3.13", "3.12", "3.11", "3.14")

	bin := t.TempDir()
	for dir, commands := range map[string][]string{
		"../..": {"./cmd/mcp-sidecar", "./e2e/testbackend"},
		"gosdk": {"./client", "./backend"},
	} {
		install.Run(t, dir, "go", append([]string{"build", "-o", bin + string(filepath.Separator)}, commands...)...)
	}

	// Modules are looked for beside the scripts.
	scripts := t.TempDir()
	modules := install.Cached(t, "sdks/typescript", []string{"typescript/package.json", "typescript/package-lock.json"}, func(dir string) {
		install.Run(t, dir, npm, "ci", "--no-audit", "--no-fund")
	})
	if err := os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(scripts, "node_modules")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"client.mjs", "backend.mjs"} {
		install.Copy(t, filepath.Join("typescript", name), scripts)
	}
	fastmcp := func(version string) string {
		return install.Venv(t, "sdks/fastmcp"+version, filepath.Join("python", "requirements-"+version+".txt"), python)
	}
	fastmcp3, fastmcp4 := fastmcp("3"), fastmcp("4")

	return programs{
		sidecar: filepath.Join(bin, "mcp-sidecar"),
		clients: map[string][]string{
			"gosdk":           {filepath.Join(bin, "client"), "-protocol", "2025-11-25"},
			"gosdk-newest":    {filepath.Join(bin, "client")},
			"typescript":      {node, filepath.Join(scripts, "client.mjs")},
			"fastmcp3":        {fastmcp3, "python/client.py"},
			"fastmcp4":        {fastmcp4, "python/client.py", "--mode", "legacy"},
			"fastmcp4-newest": {fastmcp4, "python/client.py", "--mode", "auto"},
		},
		servers: map[string][]string{
			"mcp-go":     {filepath.Join(bin, "testbackend")},
			"gosdk":      {filepath.Join(bin, "backend")},
			"typescript": {node, filepath.Join(scripts, "backend.mjs")},
			"fastmcp3":   {fastmcp3, "python/backend.py"},
			"fastmcp4":   {fastmcp4, "python/backend.py"},
		},
	}
}
