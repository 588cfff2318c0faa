//go:build unix

package proc_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestReservedAddressSurvivesRestarts(t *testing.T) {
	addr := proc.ReserveAddr(t)
	for range 3 {
		if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
			if err == nil {
				_ = conn.Close()
			}
			t.Fatalf("nobody listens: %v, want that it is refused", err)
		}
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_ = listener.Close()
	}
	for range 200 {
		if other := proc.ReserveAddr(t); other == addr {
			t.Fatal("the address was given to somebody else")
		}
		listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		if listener.Addr().String() == addr {
			t.Fatal("the address was given to a listener")
		}
	}
}

func TestSignalsAndExitCodes(t *testing.T) {
	const script = `trap 'echo bye; exit 3' TERM; echo noise >&2; echo ready now; while :; do sleep 0.01; done`
	p := proc.Start(t, "/bin/sh", "-c", script)
	if got := p.Addr(); got != "ready now" {
		t.Errorf("first line is %q", got)
	}
	if got := p.Line("ready "); got != "now" {
		t.Errorf("rest of the line is %q", got)
	}
	p.Freeze()
	p.Thaw()
	if code := p.Terminate(); code != 3 {
		t.Errorf("exit code is %d", code)
	}
	if out := p.Output(); !strings.Contains(out, "noise") || !strings.Contains(out, "bye") {
		t.Errorf("output is %q", out)
	}
	p.Kill() // harmless

	frozen := proc.Start(t, "/bin/sh", "-c", "echo ready; while :; do sleep 0.01; done")
	frozen.Addr()
	frozen.Freeze()
	frozen.Kill()
	if code := frozen.Wait(); code != -1 {
		t.Errorf("exit code of a killed process is %d", code)
	}
}

func TestBuildAndRunTestbackend(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a command")
	}
	dir := t.TempDir()
	if err := proc.Build(context.WithoutCancel(t.Context()), dir, "github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend"); err != nil {
		t.Fatal(err)
	}
	addr := proc.ReserveAddr(t)
	journal := filepath.Join(dir, "journal")
	for range 2 {
		p := proc.Start(t, filepath.Join(dir, "testbackend"), "-listen", addr, "-journal", journal)
		if got := p.Addr(); got != addr {
			t.Errorf("listens on %s, want %s", got, addr)
		}
		p.Signal(syscall.SIGUSR1)
		if code := p.Terminate(); code != 0 {
			t.Errorf("exit code is %d", code)
		}
	}
	if _, err := os.Stat(journal); err != nil {
		t.Error(err)
	}
	if err := proc.Build(context.WithoutCancel(t.Context()), dir, "./no/such/package"); err == nil {
		t.Error("want an error")
	}
}
