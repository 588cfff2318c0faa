package filewatch

import (
	"crypto/sha256"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

const (
	// maxFiles is how many files of a directory are watched.
	maxFiles = 10_000
	// maxHashed is the size up to which the content of a file is compared. Larger
	// ones have changed when their date has.
	maxHashed = 256 << 20
)

// snapshot is what was found at each watched path.
type snapshot map[string]place

// place is a watched file, or a directory with what is in it.
type place struct {
	files map[string]fileState
	dirs  map[string]bool
}

// fileState is a file at some moment.
type fileState struct {
	info fs.FileInfo
	sum  [sha256.Size]byte
}

// look looks at everything that is watched. What can't be read at the moment is
// taken to be as it was: it is probably being replaced.
func (w *Watcher) look() snapshot {
	roots := w.paths()
	now := make(snapshot, len(roots))

	for _, root := range roots {
		before := w.current[root]
		if w.candidate != nil {
			before = w.candidate[root]
		}

		now[root] = before

		target, err := filepath.EvalSymlinks(root)
		if err != nil {
			continue
		}

		info, err := os.Stat(target)
		if err != nil {
			continue
		}

		p := place{files: map[string]fileState{}, dirs: map[string]bool{}}

		if info.IsDir() {
			p.walk(target, before)
		} else {
			p.add(root, info, before)
		}

		if len(p.files)+len(p.dirs) > 0 {
			now[root] = p
		}
	}

	return now
}

// walk adds what is in a directory.
func (p *place) walk(dir string, before place) {
	// Whatever can't be read counts as not there.
	_ = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return nil //nolint:nilerr // see above
		case path != dir && ignored(d.Name()):
			if d.IsDir() {
				return fs.SkipDir
			}

			return nil
		case d.IsDir():
			p.dirs[path] = true
			return nil
		case len(p.files) >= maxFiles:
			return fs.SkipAll
		}

		if info, err := os.Stat(path); err == nil && info.Mode().IsRegular() {
			p.add(path, info, before)
		}

		return nil
	})
}

// ignored reports whether a name in a directory stands for nothing that a server
// is made of: a hidden file, or what interpreters and editors leave behind.
func ignored(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasSuffix(name, "~") || strings.HasSuffix(name, ".pyc") ||
		name == "__pycache__" || name == "node_modules"
}

// add adds a file. It is only read if it seems to be another one than before.
func (p *place) add(path string, info fs.FileInfo, before place) {
	old, known := before.files[path]
	if known && os.SameFile(old.info, info) && old.info.Size() == info.Size() && old.info.ModTime().Equal(info.ModTime()) {
		p.files[path] = old
		return
	}

	sum, err := digest(path, info)

	switch {
	case err == nil:
		p.files[path] = fileState{info, sum}
	case known:
		p.files[path] = old
	}
}

func digest(path string, info fs.FileInfo) (sum [sha256.Size]byte, err error) {
	h := sha256.New()

	if info.Size() > maxHashed {
		_, err = io.WriteString(h, info.ModTime().Format(time.RFC3339Nano)+info.Name())
	} else {
		err = readInto(h, path)
	}

	h.Sum(sum[:0])

	return sum, err //nolint:wrapcheck // nobody sees it
}

func readInto(w io.Writer, path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err //nolint:wrapcheck // nobody sees it
	}

	_, err = io.Copy(w, io.LimitReader(f, maxHashed))
	_ = f.Close()

	return err //nolint:wrapcheck // nobody sees it
}

// differs reports whether the content of a file, or which files there are, is
// another than before, and returns one of those. A path that wasn't watched
// before hasn't changed.
func (s snapshot) differs(before snapshot) (string, bool) {
	for root, p := range s {
		old, known := before[root]
		if !known {
			continue
		}

		for path, f := range p.files {
			if o, ok := old.files[path]; !ok || o.sum != f.sum {
				return path, true
			}
		}

		for path := range old.files {
			if _, ok := p.files[path]; !ok {
				return path, true
			}
		}
	}

	return "", false
}
