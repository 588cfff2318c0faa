package main

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"
)

// TestStall: what a client doesn't take isn't offered without end, and one that
// is only slow gets everything.
func TestStall(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	pair := func(limit time.Duration) (client, server net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if server, err = (stallListener{ln, limit}).Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		return client, server
	}

	_, server := pair(100 * time.Millisecond)
	if n, err := server.Write(make([]byte, 64<<20)); !errors.Is(err, os.ErrDeadlineExceeded) || n == 64<<20 {
		t.Errorf("%d bytes were written to a client that doesn't read: %v", n, err)
	}

	client, server := pair(time.Minute)
	const size = 3<<20 + 1
	go func() {
		if n, err := server.Write(make([]byte, size)); n != size || err != nil {
			t.Errorf("%d of %d bytes were written: %v", n, size, err)
		}
		server.Close()
	}()
	if n, err := io.Copy(io.Discard, client); n != size || err != nil {
		t.Errorf("%d of %d bytes came: %v", n, size, err)
	}
}
