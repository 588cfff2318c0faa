//go:build unix

package install

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Python returns the path of an interpreter of one of the versions, such as "3.12", the first that there is. It looks for
// them on PATH, among those of pyenv and where uv finds them. Where there is none the test is skipped, and fails under
// CI=true, where everything has to be there.
func Python(tb testing.TB, versions ...string) string {
	tb.Helper()
	for _, version := range versions {
		for _, candidate := range candidates(tb, version) {
			// Debian's Python comes without ensurepip, and pyenv's names may lead nowhere.
			const ask = `import sys; print("%d.%d" % sys.version_info[:2], sys.executable)`
			needs := "import venv, ensurepip; "
			if uv(tb) != "" {
				needs = ""
			}
			out, err := exec.CommandContext(tb.Context(), candidate, "-c", needs+ask).Output()
			if path, ok := strings.CutPrefix(strings.TrimSpace(string(out)), version+" "); ok && err == nil {
				return path
			}
		}
	}
	missing := "Python " + strings.Join(versions, " or ") + ", with venv and ensurepip or uv beside it, is not installed"
	if os.Getenv("CI") == "true" {
		tb.Fatalf("%s, and CI=true needs it", missing)
	}
	tb.Skipf("SKIPPED: %s", missing)
	return ""
}

// candidates returns the names and paths under which a version of Python may be found.
func candidates(tb testing.TB, version string) []string {
	tb.Helper()
	all := []string{"python" + version, "python3"}
	root := os.Getenv("PYENV_ROOT")
	if home, err := os.UserHomeDir(); root == "" && err == nil {
		root = filepath.Join(home, ".pyenv")
	}
	installed, err := filepath.Glob(filepath.Join(root, "versions", version+".*", "bin", "python"+version))
	if err != nil {
		tb.Fatal(err)
	}
	all = append(all, installed...)
	if uv := uv(tb); uv != "" {
		out, err := exec.CommandContext(tb.Context(), uv, "python", "find", "--no-python-downloads", version).Output()
		if path := strings.TrimSpace(string(out)); err == nil && path != "" {
			all = append(all, path)
		}
	}
	return all
}

// uv returns the path of uv, which installs packages in a fraction of pip's time, and nothing where it isn't there.
func uv(tb testing.TB) string {
	tb.Helper()
	path, err := exec.LookPath("uv")
	if err != nil || exec.CommandContext(tb.Context(), path, "--version").Run() != nil {
		return ""
	}
	return path
}

// Venv returns the interpreter of a virtual environment in the user's cache that has the packages of a requirements file.
// The file must name all of them, with their hashes.
func Venv(tb testing.TB, name, requirements, python string) string {
	tb.Helper()
	dir := Cached(tb, name, []string{requirements}, func(dir string) {
		file := filepath.Base(requirements)
		if uv := uv(tb); uv != "" {
			Run(tb, dir, uv, "venv", "--quiet", "--no-python-downloads", "--python", python, "venv")
			Run(tb, dir, uv, "pip", "install", "--quiet", "--python", filepath.Join("venv", "bin", "python"),
				"--require-hashes", "--no-deps", "-r", file)
			return
		}
		Run(tb, dir, python, "-m", "venv", "venv")
		Run(tb, dir, filepath.Join("venv", "bin", "python"), "-m", "pip", "install", "--no-compile", "--quiet",
			"--disable-pip-version-check", "--require-hashes", "--no-deps", "-r", file)
	})
	return filepath.Join(dir, "venv", "bin", "python")
}
