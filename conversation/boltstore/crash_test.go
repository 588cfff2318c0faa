package boltstore

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// envCrashWriter makes the test binary write to the state file that it names, until it is killed.
const envCrashWriter = "BOLTSTORE_TEST_CRASH_WRITER"

// crashWriter reports each write on stdout once it is done.
func crashWriter(path string) {
	s, err := Open(path, DefaultOptions())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := 0; ; i++ {
				id := conversation.ID(fmt.Sprintf("w%d-%d", w, i))
				c, err := s.Put(context.Background(), conversation.Conversation{ID: id, Attempts: i})
				if err == nil {
					_, err = s.Put(context.Background(), c)
				}
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Println(id)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestKilledWhileWriting(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "state.db")
	done := make(map[conversation.ID]bool)
	for round := range 3 {
		cmd := exec.CommandContext(t.Context(), os.Args[0])
		cmd.Env = append(os.Environ(), envCrashWriter+"="+path)
		cmd.Stderr = os.Stderr
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for n := 0; lines.Scan(); n++ {
			done[conversation.ID(lines.Text())] = true
			if n == 50+37*round {
				if err := cmd.Process.Kill(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() == 1 {
			t.Fatalf("the writer ended by itself: %v", err)
		}

		began := time.Now()
		s, err := Open(path, DefaultOptions())
		if err != nil {
			t.Fatalf("opening after the kill: %v", err)
		}
		t.Logf("%d writes, reopened in %v", len(done), time.Since(began))
		for id := range done {
			if c, err := s.Get(t.Context(), id); err != nil || c.Revision != 2 {
				t.Errorf("%q was acknowledged and is %d, %v", id, c.Revision, err)
			}
		}
		for c, err := range s.All(t.Context()) {
			if err != nil {
				t.Errorf("record %q: %v", c.ID, err)
				continue
			}
			// The next writer begins anew.
			if err := s.Delete(t.Context(), c.ID, c.Revision); err != nil {
				t.Error(err)
			}
		}
		clear(done)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}
