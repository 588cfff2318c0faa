//go:build sdks && unix

package sdks

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// programs is everything that the tests start: the sidecar, and one command line for each client and backend.
type programs struct {
	sidecar string
	clients map[string][]string
	servers map[string][]string
}

// install builds the Go programs, and puts the packages of the others into the user's cache.
func install(t *testing.T) programs {
	t.Helper()
	npm, node, python := proc.Need(t, "npm"), proc.Need(t, "node"), needPython(t)

	bin := t.TempDir()
	for dir, commands := range map[string][]string{
		"../..": {"./cmd/mcp-sidecar", "./e2e/testbackend"},
		"gosdk": {"./client", "./backend"},
	} {
		run(t, dir, "go", append([]string{"build", "-o", bin + string(filepath.Separator)}, commands...)...)
	}

	// Modules are looked for beside the scripts.
	scripts := t.TempDir()
	modules := cached(t, "typescript", []string{"typescript/package.json", "typescript/package-lock.json"}, func(dir string) {
		run(t, dir, npm, "ci", "--no-audit", "--no-fund")
	})
	if err := os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(scripts, "node_modules")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"client.mjs", "backend.mjs"} {
		place(t, filepath.Join("typescript", name), scripts)
	}
	fastmcp := func(version string) string {
		requirements := "requirements-" + version + ".txt"
		dir := cached(t, "fastmcp"+version, []string{filepath.Join("python", requirements)}, func(dir string) {
			run(t, dir, python, "-m", "venv", "venv")
			run(t, dir, "venv/bin/python", "-m", "pip", "install", "--no-compile", "--quiet", "--disable-pip-version-check",
				"--require-hashes", "--no-deps", "-r", requirements)
		})
		return filepath.Join(dir, "venv", "bin", "python")
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

// needPython returns the path of a Python that FastMCP runs on.
func needPython(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"python3", "python3.14", "python3.13", "python3.12", "python3.11"} {
		// Debian's Python comes without ensurepip, and pyenv's names may lead nowhere.
		out, err := exec.CommandContext(t.Context(), name, "-c",
			"import sys, venv, ensurepip; assert sys.version_info >= (3, 11); print(sys.executable)").Output()
		if err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	const missing = "Python 3.11 or newer, with venv and ensurepip, is not installed"
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s, and CI=true needs it", missing)
	}
	t.Skipf("SKIPPED: %s", missing)
	return ""
}

// cached returns a directory of the user's cache with copies of some files and with what fill makes of them. It is filled
// once for each content of the files.
func cached(t *testing.T, name string, files []string, fill func(dir string)) string {
	t.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		t.Fatal(err)
	}
	key := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		key.Write(data)
	}
	dir := filepath.Join(cache, "mcp-sidecar", "sdks", fmt.Sprintf("%s-%.6x", name, key.Sum(nil)))
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	t.Logf("installing %s into the cache, once", name)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		place(t, file, dir)
	}
	fill(dir)
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// place copies a file into a directory.
func place(t *testing.T, file, dir string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
