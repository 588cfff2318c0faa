package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// check makes a platform's files from two clones of the last commit, in
// directories and with build caches that have nothing in common.
func check(ctx context.Context, dir string, p platform) error {
	tmp, err := os.MkdirTemp("", "release-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	var sums [][]byte

	for i, cache := range []string{"", filepath.Join(tmp, "cache")} {
		clone := filepath.Join(tmp, fmt.Sprintf("clone%d", i), fmt.Sprintf("source-%d", i))

		git := exec.CommandContext(ctx, "git", "clone", "--quiet", dir, clone)
		git.Stderr = os.Stderr

		if err := git.Run(); err != nil {
			return fmt.Errorf("cloning: %w", err)
		}

		out := filepath.Join(tmp, fmt.Sprintf("out%d", i))
		if _, err := release(ctx, source{clone, cache}, out, []platform{p}); err != nil {
			return err
		}

		content, err := os.ReadFile(filepath.Join(out, checksums))
		if err != nil {
			return err
		}

		sums = append(sums, content)
	}

	if !bytes.Equal(sums[0], sums[1]) {
		return fmt.Errorf("two builds of one commit differ:\n%s\n%s", sums[0], sums[1])
	}

	fmt.Printf("two builds are the same:\n%s", sums[0])

	return nil
}
