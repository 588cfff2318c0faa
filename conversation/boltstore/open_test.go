package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	write := func(b []byte) func(string) error {
		return func(path string) error { return os.WriteFile(path, b, 0o600) }
	}
	change := func(fn func(*bolt.Tx) error) func(string) error {
		return func(path string) error {
			db, err := bolt.Open(path, 0o600, nil)
			if err != nil {
				return err
			}
			return errors.Join(db.Update(fn), db.Close())
		}
	}
	for name, test := range map[string]struct {
		spoil func(path string) error
		want  error
		text  string
	}{
		"empty":     {write(nil), ErrCorrupt, "move it away"},
		"text":      {write([]byte("servers:\n- name: x\n")), ErrCorrupt, "move it away"},
		"garbage":   {write(bytes.Repeat([]byte{0xa5}, 1<<17)), ErrCorrupt, "move it away"},
		"truncated": {func(path string) error { return os.Truncate(path, 3*4096) }, ErrCorrupt, "move it away"},
		"pages overwritten": {func(path string) error {
			return overwrite(path, 2*4096)
		}, ErrCorrupt, "move it away"},
		"another program's": {
			change(func(tx *bolt.Tx) error { return tx.DeleteBucket(bucketMeta) }), ErrCorrupt, "not of mcp-sidecar",
		},
		"bucket missing": {
			change(func(tx *bolt.Tx) error { return tx.DeleteBucket(bucketBlobs) }), ErrCorrupt, "no blobs",
		},
		"newer": {
			change(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, []byte("2")) }), ErrFormat, "upgrade mcp-sidecar",
		},
		"format not a number": {
			change(func(tx *bolt.Tx) error { return tx.Bucket(bucketMeta).Put(keyFormat, []byte("two")) }), ErrCorrupt, "format",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "state.db")
			s := openTest(t, path, nil)
			for range 50 { // some pages
				c := conversation.Conversation{ID: conversation.ID(strings.Repeat("x", 100) + time.Now().String())}
				if _, err := s.Put(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if err := test.spoil(path); err != nil {
				t.Fatal(err)
			}
			before, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}

			_, err = Open(path, DefaultOptions())
			if !errors.Is(err, test.want) || !strings.Contains(err.Error(), test.text) || !strings.Contains(err.Error(), path) {
				t.Errorf("Open: %v; want %v, %q and the path", err, test.want, test.text)
			}
			after, err := os.ReadFile(path)
			if err != nil || !bytes.Equal(before, after) {
				t.Errorf("the file was changed (%v)", err)
			}
		})
	}
}

func TestOpenLocked(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path, nil)
	o := DefaultOptions()
	o.Timeout = 50 * time.Millisecond
	_, err := Open(path, o)
	if !errors.Is(err, ErrLocked) || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "another process") {
		t.Errorf("Open of an open file: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openTest(t, path, nil)
}

// TestOpenWaits covers a restart that overlaps with the end of the old process.
func TestOpenWaits(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	first := openTest(t, path, nil)
	second := make(chan error, 1)
	go func() {
		s, err := Open(path, Options{Timeout: 20 * time.Second, SweepInterval: time.Hour})
		if err == nil {
			err = s.Close()
		}
		second <- err
	}()
	if _, err := first.Put(t.Context(), conversation.Conversation{ID: "a"}); err != nil {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Error(err)
	}
	if err := <-second; err != nil {
		t.Errorf("opening while the other closes: %v", err)
	}
}

func TestOpenDirectoryMissing(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "missing")
	_, err := Open(filepath.Join(dir, "state.db"), DefaultOptions())
	if err == nil || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "create it") {
		t.Errorf("Open in a missing directory: %v", err)
	}
	_, err = Open(t.TempDir(), DefaultOptions())
	if err == nil || !strings.Contains(err.Error(), "is a directory") {
		t.Errorf("Open of a directory: %v", err)
	}
}

func TestOpenNewFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "state.db")
	s := openTest(t, path, nil)
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the state file is %v, %v; want 0600", info.Mode(), err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("files left in the directory: %v, %v", entries, err)
	}
	if n, err := s.Size(); err != nil || n < 4096 {
		t.Errorf("Size = %d, %v", n, err)
	}
}

// TestOpenNewFileTwice has several openers make the file at once: none may work on a file that another one replaced.
func TestOpenNewFileTwice(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	var wg sync.WaitGroup
	for _, id := range []conversation.ID{"a", "b", "c", "d"} {
		wg.Go(func() {
			s, err := Open(path, Options{Timeout: 20 * time.Second, SweepInterval: time.Hour})
			if err != nil {
				t.Error(err)
				return
			}
			if _, err := s.Put(t.Context(), conversation.Conversation{ID: id}); err != nil {
				t.Error(err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	n := 0
	for _, err := range openTest(t, path, nil).All(t.Context()) {
		if err != nil {
			t.Error(err)
		}
		n++
	}
	if n != 4 {
		t.Errorf("%d of 4 writes are there", n)
	}
}

// overwrite replaces the pages from an offset on.
func overwrite(path string, from int) error {
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	for i := from; i < len(b); i++ {
		b[i] = 0xff
	}
	return os.WriteFile(path, b, 0o600)
}

// TestDamagedWhileOpen covers damage that shows only when it is read.
func TestDamagedWhileOpen(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	s := openTest(t, path, nil)
	for i := range 50 {
		c := conversation.Conversation{ID: conversation.ID(fmt.Sprintf("c%d", i)), AgentServer: strings.Repeat("x", 1000)}
		if _, err := s.Put(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if err := overwrite(path, 2*4096); err != nil {
		t.Fatal(err)
	}
	var failed error
	for _, err := range s.All(t.Context()) {
		failed = err
	}
	if !errors.Is(failed, ErrCorrupt) || !strings.Contains(failed.Error(), path) {
		t.Errorf("All: %v", failed)
	}
	if _, err := s.Put(t.Context(), conversation.Conversation{ID: "new"}); !errors.Is(err, ErrCorrupt) {
		t.Errorf("Put: %v", err)
	}
}
