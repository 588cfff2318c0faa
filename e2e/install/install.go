//go:build unix

// Package install puts the packages of other people's programs into the user's cache, where end-to-end tests find them
// again.
package install

import (
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// Cached returns a directory of the user's cache with copies of some files and with what fill makes of them. It is filled
// once for each content of the files, also where several programs ask for it at once.
func Cached(tb testing.TB, name string, files []string, fill func(dir string)) string {
	tb.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Fatal(err)
	}
	key := sha256.New()
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			tb.Fatal(err)
		}
		key.Write(data)
	}
	dir := filepath.Join(cache, "mcp-sidecar", fmt.Sprintf("%s-%.6x", name, key.Sum(nil)))
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		tb.Fatal(err)
	}
	defer lock(tb, dir+".lock")()
	done := filepath.Join(dir, "installed")
	if _, err := os.Stat(done); err == nil {
		return dir
	}
	tb.Logf("installing %s into the cache, once", name)
	if err := os.RemoveAll(dir); err != nil {
		tb.Fatal(err)
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	for _, file := range files {
		Copy(tb, file, dir)
	}
	fill(dir)
	if err := os.WriteFile(done, nil, 0o644); err != nil {
		tb.Fatal(err)
	}
	return dir
}

// lock waits until nobody else has the lock, and returns what gives it back. The file stays.
func lock(tb testing.TB, path string) (unlock func()) {
	tb.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		tb.Fatal(err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		tb.Fatalf("locking %s: %v", path, err)
	}
	return func() { _ = f.Close() }
}

// Copy copies a file into a directory.
func Copy(tb testing.TB, file, dir string) {
	tb.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		tb.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, filepath.Base(file)), data, 0o644); err != nil {
		tb.Fatal(err)
	}
}

// Run runs a program in a directory, and fails the test with what it wrote when it fails.
func Run(tb testing.TB, dir, name string, args ...string) {
	tb.Helper()
	cmd := exec.CommandContext(tb.Context(), name, args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		tb.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}
