package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// packed are the files of the repository that come with the program.
func packed() []string {
	return []string{"LICENSE", "README.md", "CHANGELOG.md", "docs/systemd/mcp-sidecar.service"}
}

// entry is a file of an archive.
type entry struct {
	name    string
	mode    int64
	content []byte
}

// pack returns the archive of a platform.
func pack(dir string, b *binary, licenses []byte) ([]byte, error) {
	entries := []entry{
		{program, 0o755, b.content},
		{"THIRD-PARTY-LICENSES.txt", 0o644, licenses},
	}

	for _, name := range packed() {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return nil, err
		}

		entries = append(entries, entry{filepath.Base(name), 0o644, content})
	}

	return archive(b.name(), b.time, entries)
}

// archive returns a compressed archive with one directory. Nothing in it depends
// on the machine: owners are 0, all times are the given one.
func archive(dir string, at time.Time, entries []entry) ([]byte, error) {
	slices.SortFunc(entries, func(x, y entry) int { return strings.Compare(x.name, y.name) })

	var buf bytes.Buffer

	z, err := gzip.NewWriterLevel(&buf, gzip.BestCompression)
	if err != nil {
		return nil, err
	}

	t := tar.NewWriter(z)

	for _, e := range entries {
		h := &tar.Header{
			Typeflag: tar.TypeReg, Name: dir + "/" + e.name, Mode: e.mode, Size: int64(len(e.content)),
			ModTime: at.UTC().Truncate(time.Second), Format: tar.FormatUSTAR,
		}
		if err := t.WriteHeader(h); err != nil {
			return nil, err
		}

		if _, err := t.Write(e.content); err != nil {
			return nil, err
		}
	}

	if err := errors.Join(t.Close(), z.Close()); err != nil {
		return nil, err
	}

	return buf.Bytes(), nil
}

// thirdParty returns the licences of all that is linked into a program.
func thirdParty(ctx context.Context, src source, b *binary) ([]byte, error) {
	var out bytes.Buffer

	goroot, err := src.command(ctx, b.platform, "env", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("asking Go for its root: %w", err)
	}

	if err := licensesOf(&out, "Go "+b.info.GoVersion, strings.TrimSpace(string(goroot))); err != nil {
		return nil, err
	}

	args := []string{"mod", "download", "-json"}
	for _, d := range b.info.Deps {
		args = append(args, d.Path+"@"+d.Version)
	}

	list, err := src.command(ctx, b.platform, args...).Output()
	if err != nil {
		return nil, fmt.Errorf("looking for the modules: %w", err)
	}

	for dec := json.NewDecoder(bytes.NewReader(list)); ; {
		var m struct{ Path, Version, Dir string }
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return out.Bytes(), nil
		} else if err != nil {
			return nil, fmt.Errorf("looking for the modules: %w", err)
		}

		if err := licensesOf(&out, m.Path+" "+m.Version, m.Dir); err != nil {
			return nil, err
		}
	}
}

// licensesOf writes the licence files in a directory. That there is none is an
// error: it couldn't be passed on.
func licensesOf(out *bytes.Buffer, what, dir string) error {
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}

	found := false
	license := regexp.MustCompile(`(?i)^(licen[sc]e|copying|notice|patents)([.-].*)?$`)

	for _, f := range files {
		if f.IsDir() || !license.MatchString(f.Name()) {
			continue
		}

		content, err := os.ReadFile(filepath.Join(dir, f.Name()))
		if err != nil {
			return err
		}

		found = true
		fmt.Fprintf(out, "%s\n%s: %s\n%[1]s\n\n%[4]s\n\n", strings.Repeat("=", 80), what, f.Name(), bytes.TrimSpace(content))
	}

	if !found {
		return fmt.Errorf("%s has no licence file", what)
	}

	return nil
}
