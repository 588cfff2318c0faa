package boltstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"syscall"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// format is the version of the layout of the file: buckets and keys. Records have versions of their own.
const format = 1

var (
	// ErrLocked is wrapped when another process has the file open.
	ErrLocked = errors.New("in use by another process")
	// ErrFormat is wrapped when a newer program wrote the file.
	ErrFormat = errors.New("written by a newer version")
	// ErrCorrupt is wrapped when the file isn't a usable state file. It is never replaced silently.
	ErrCorrupt = errors.New("damaged")
)

// Options of a store. Start from DefaultOptions.
type Options struct {
	// Timeout is how long to wait for another process to let go of the file.
	Timeout time.Duration
	// SweepInterval is how often expired blobs are removed.
	SweepInterval time.Duration
	// NoSync leaves writing to disk to the operating system: fast, and safe as long as that doesn't crash. For tests.
	NoSync bool
	// Now is the clock for the life of blobs; nil is time.Now.
	Now func() time.Time
}

// DefaultOptions returns the defaults.
func DefaultOptions() Options {
	return Options{Timeout: 2 * time.Second, SweepInterval: 10 * time.Minute}
}

// Open opens the state file at path, or makes it, readable by its owner only; its directory must exist. Errors wrap ErrLocked, ErrFormat or
// ErrCorrupt where that is the reason.
func Open(path string, o Options) (*Store, error) {
	if o.Timeout <= 0 || o.SweepInterval <= 0 {
		return nil, fmt.Errorf("opening the state: Timeout (%v) and SweepInterval (%v) must be positive", o.Timeout, o.SweepInterval)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if err := prepare(path, o); err != nil {
		return nil, err
	}
	db, err := open(path, o)
	if err != nil {
		return nil, err
	}
	return newStore(db, path, o), nil
}

// prepare makes the file unless it is there. It appears complete or not at all, so that an empty file is always a damaged one.
func prepare(path string, o Options) error {
	dir := filepath.Dir(path)
	info, err := os.Stat(dir) //nolint:gosec // the operator names the file
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("opening the state: directory %q doesn't exist: create it, or keep the state elsewhere", dir)
	case err != nil:
		return fmt.Errorf("opening the state: %w", err)
	case !info.IsDir():
		return fmt.Errorf("opening the state: %q isn't a directory", dir)
	}
	info, err = os.Stat(path) //nolint:gosec // the operator names the file
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fmt.Errorf("opening the state: %w", err)
	case info.IsDir():
		return fmt.Errorf("opening the state: %q is a directory: name a file in it", path)
	case info.Size() == 0:
		return corrupt(path, errors.New("it is empty"))
	default:
		return nil
	}

	f, err := os.CreateTemp(dir, filepath.Base(path)+".new-*")
	if err != nil {
		return fmt.Errorf("making the state file: %w", err)
	}
	defer os.Remove(f.Name()) // gone already when all went well
	if err := f.Close(); err != nil {
		return fmt.Errorf("making the state file: %w", err)
	}
	db, err := bolt.Open(f.Name(), 0o600, boltOptions(o))
	if err != nil {
		return fmt.Errorf("making the state file: %w", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		for _, name := range [][]byte{bucketConversations, bucketGenerations, bucketBlobs, bucketMeta} {
			if _, err := tx.CreateBucketIfNotExists(name); err != nil {
				return err
			}
		}
		return tx.Bucket(bucketMeta).Put(keyFormat, strconv.AppendInt(nil, format, 10))
	})
	if err := errors.Join(err, db.Close()); err != nil {
		return fmt.Errorf("making the state file: %w", err)
	}
	// A link doesn't replace what another process made meanwhile; not every file system has them.
	if err := os.Link(f.Name(), path); err != nil && !errors.Is(err, fs.ErrExist) {
		if err := os.Rename(f.Name(), path); err != nil { //nolint:gosec // the operator names the file
			return fmt.Errorf("making the state file: %w", err)
		}
	}
	return nil
}

func boltOptions(o Options) *bolt.Options {
	return &bolt.Options{Timeout: o.Timeout, NoSync: o.NoSync, FreelistType: bolt.FreelistMapType, NoStatistics: true}
}

// open opens a file that is there, and looks whether it can be used.
func open(path string, o Options) (_ *bolt.DB, err error) {
	defer guard(path, &err)()
	db, err := bolt.Open(path, 0o600, boltOptions(o))
	switch {
	case errors.Is(err, berrors.ErrTimeout):
		return nil, fmt.Errorf("opening the state: %q is %w: stop the other mcp-sidecar, or give this one a state file of its own",
			path, ErrLocked)
	case isErrno(err): // permissions, a read-only or full disk
		return nil, fmt.Errorf("opening the state: %w: mcp-sidecar must be able to read and write it", err)
	case err != nil:
		return nil, corrupt(path, err)
	}
	if err := check(db, path); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// check looks whether the file is whole and has a format that this program knows.
func check(db *bolt.DB, path string) error {
	return db.View(func(tx *bolt.Tx) error {
		info, err := os.Stat(path) //nolint:gosec // the operator names the file
		if err != nil {
			return fmt.Errorf("opening the state: %w", err)
		}
		if info.Size() < tx.Size() {
			return corrupt(path, fmt.Errorf("it has %d bytes of %d", info.Size(), tx.Size()))
		}
		meta := tx.Bucket(bucketMeta)
		if meta == nil {
			return corrupt(path, errors.New("it is a bbolt file, but not of mcp-sidecar"))
		}
		version, err := strconv.Atoi(string(meta.Get(keyFormat)))
		if err != nil {
			return corrupt(path, fmt.Errorf("its format is %.20q", meta.Get(keyFormat)))
		}
		if version > format {
			return fmt.Errorf("opening the state: %q was %w (format %d, this one knows %d): upgrade mcp-sidecar, or use another state file",
				path, ErrFormat, version, format)
		}
		for _, name := range [][]byte{bucketConversations, bucketGenerations, bucketBlobs} {
			if tx.Bucket(name) == nil {
				return corrupt(path, fmt.Errorf("it has no %s", name))
			}
		}
		return nil
	})
}

// corrupt says what to do, since only the operator can decide that the registrations may go.
func corrupt(path string, err error) error {
	return fmt.Errorf("state file %q is %w: %w: restore it from a copy, or move it away to begin with no conversations", path, ErrCorrupt, err)
}

// guard turns what bbolt makes of pages that make no sense, a panic or an access behind the end of the file, into an error:
//
//	defer guard(path, &err)()
func guard(path string, err *error) func() {
	before := debug.SetPanicOnFault(true)
	return func() {
		debug.SetPanicOnFault(before)
		if p := recover(); p != nil {
			*err = corrupt(path, fmt.Errorf("%v", p))
		}
	}
}

func isErrno(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok
}
