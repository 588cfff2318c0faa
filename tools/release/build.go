package main

import (
	"context"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// program is what is released.
const program = "mcp-sidecar"

// checksums is the file with the hashes of all others, as sha256sum reads it.
const checksums = "checksums.txt"

// platform is what a program is built for.
type platform struct{ os, arch string }

func parsePlatform(s string) (platform, error) {
	goos, arch, ok := strings.Cut(strings.TrimSpace(s), "/")
	if !ok || goos == "" || arch == "" {
		return platform{}, fmt.Errorf("want OS/ARCH, got %q", s)
	}

	return platform{goos, arch}, nil
}

// source is the repository that is built, and with what.
type source struct {
	dir string
	// cache is the build cache; empty: the user's.
	cache string
}

// command is Go in the source, for a platform, with nothing of the user's settings
// that would change what comes out.
func (s source) command(ctx context.Context, p platform, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, "go", args...)
	c.Dir, c.Stderr = s.dir, os.Stderr
	c.Env = append(os.Environ(),
		"GOOS="+p.os, "GOARCH="+p.arch, "CGO_ENABLED=0",
		"GOAMD64=v1", "GOARM64=v8.0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off")

	if s.cache != "" {
		c.Env = append(c.Env, "GOCACHE="+s.cache)
	}

	return c
}

// binary is a program that was built.
type binary struct {
	platform platform
	content  []byte
	info     *buildinfo.BuildInfo
	version  string    // without the v of the tag
	time     time.Time // of the commit
}

// build builds the program. These are the flags of make build, but that a program
// that doesn't know its commit is an error.
func build(ctx context.Context, src source, p platform) (*binary, error) {
	tmp, err := os.MkdirTemp("", "release-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)

	file := filepath.Join(tmp, program)

	if err := src.command(ctx, p, "build", "-trimpath", "-buildvcs=true", "-o", file, "./cmd/"+program).Run(); err != nil {
		return nil, fmt.Errorf("building for %s/%s: %w", p.os, p.arch, err)
	}

	b := &binary{platform: p}
	if b.content, err = os.ReadFile(file); err != nil {
		return nil, err
	}

	if b.info, err = buildinfo.ReadFile(file); err != nil {
		return nil, fmt.Errorf("reading what the program says of itself: %w", err)
	}

	b.version = strings.TrimPrefix(b.info.Main.Version, "v")

	if setting(b.info, "vcs.modified") != "false" {
		return nil, errors.New("the work tree has changes: commit them, so that the release can be built again from its commit")
	}

	if b.time, err = time.Parse(time.RFC3339, setting(b.info, "vcs.time")); err != nil {
		return nil, fmt.Errorf("reading the time of the commit: %w", err)
	}

	return b, nil
}

func setting(info *buildinfo.BuildInfo, key string) string {
	for _, s := range info.Settings {
		if s.Key == key {
			return s.Value
		}
	}

	return ""
}

// name is what the files of a platform begin with.
func (b *binary) name() string {
	return fmt.Sprintf("%s_%s_%s_%s", program, b.version, b.platform.os, b.platform.arch)
}

// release makes the files for all platforms in out and returns their names.
func release(ctx context.Context, src source, out string, all []platform) ([]string, error) {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return nil, err
	}

	var sums, names []string

	for _, p := range all {
		b, err := build(ctx, src, p)
		if err != nil {
			return nil, err
		}

		licenses, err := thirdParty(ctx, src, b)
		if err != nil {
			return nil, err
		}

		archive, err := pack(src.dir, b, licenses)
		if err != nil {
			return nil, err
		}

		bom, err := billOfMaterials(b)
		if err != nil {
			return nil, err
		}

		for name, content := range map[string][]byte{b.name() + ".tar.gz": archive, b.name() + ".cdx.json": bom} {
			if err := os.WriteFile(filepath.Join(out, name), content, 0o644); err != nil {
				return nil, err
			}

			sums = append(sums, sha(content)+"  "+name+"\n")
			names = append(names, name)
		}
	}

	slices.SortFunc(sums, func(x, y string) int { return strings.Compare(x[sha256.Size*2:], y[sha256.Size*2:]) })
	names = append(names, checksums)
	slices.Sort(names)

	return names, os.WriteFile(filepath.Join(out, checksums), []byte(strings.Join(sums, "")), 0o644)
}

func sha(content []byte) string {
	sum := sha256.Sum256(content)

	return hex.EncodeToString(sum[:])
}
