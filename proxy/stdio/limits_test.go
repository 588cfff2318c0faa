package stdio

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestLimits(t *testing.T) {
	cfg := testConfig(t, "plain")
	cfg.MaxMessage = 1 << 20
	f := start(t, cfg)
	s := f.open()

	if got := f.text(s, "echo", "x", strings.Repeat("x", 500_000)); len(got) < 500_000 {
		t.Errorf("got %d bytes", len(got))
	}

	if status, _ := f.post(s, toolCall("1", "echo", "x", strings.Repeat("x", 1<<20))); status != http.StatusRequestEntityTooLarge {
		t.Errorf("got %d", status)
	}

	if err := f.failing(t.Context(), s, toolCall("1", "huge")); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("got %v", err)
	}

	if status, _ := f.post(s, toolCall("1", "pid")); status != http.StatusNotFound {
		t.Errorf("got %d", status)
	}

	f.pid(f.open())
}

func TestSlowReader(t *testing.T) {
	cfg := testConfig(t, "plain")
	cfg.MaxMessage = 1 << 10
	f := start(t, cfg)
	s := f.open()
	stream := f.listen(s)

	for range 4 {
		f.post(s, toolCall("1", "raw", "line", `{"jsonrpc":"2.0","method":"x","params":{"x":"`+strings.Repeat("x", 800)+`"}}`))
	}

	if _, err := stream.next(); err != nil {
		t.Error(err)
	}

	if _, err := stream.next(); err != nil {
		t.Error(err)
	}

	stream.end(io.ErrUnexpectedEOF)
}

func TestCancelledStreamEnds(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()
	ctx, cancel := context.WithCancel(t.Context())

	resp, err := f.do(ctx, http.MethodGet, s, "")
	if err != nil {
		t.Fatal(err)
	}

	cancel()

	if _, err := io.ReadAll(resp.Body); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}

	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}

	if _, err := resp.Body.Read(make([]byte, 1)); err == nil {
		t.Error("a closed body can be read")
	}

	if _, ok := f.session(s).idleSince(); !ok {
		t.Error("the session still has a stream")
	}
}

func TestLeftRequestIsNotBegun(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()
	file := filepath.Join(t.TempDir(), "ran")
	p := f.session(s).proc

	ctx, cancel := context.WithCancel(t.Context())
	cancel()

	m, _, err := readMessages([]byte(toolCall("1", "wait", "started", file)))
	if err != nil {
		t.Fatal(err)
	}

	x := newExchange(http.Header{}, 1, false, 100)
	x.leave()

	if err := p.send(ctx, f.session(s), x, m); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}

	f.pid(s) // came after it

	if p.busy() {
		t.Error("it waits for an answer")
	}
}

func TestProcessThatDoesNotRead(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	s := f.open()
	p := f.session(s).proc
	body := toolCall("1", "echo", "x", strings.Repeat("x", 16<<10))

	// More than the pipe and the queue take.
	const half = queuedLines

	ctx, cancel := context.WithCancel(t.Context())
	left, lost := make(chan error, half), make(chan error, half+1)

	go func() {
		lost <- f.failing(t.Context(), s, toolCall("0", "block", "file", filepath.Join(t.TempDir(), "never")))
	}()

	eventually(t, "it is blocked", p.busy)

	for range half {
		go func() { left <- f.failing(ctx, s, body) }()
	}

	for range half {
		go func() {
			resp, err := f.do(t.Context(), http.MethodPost, s, body)
			if err == nil {
				_ = resp.Body.Close()

				if resp.StatusCode == http.StatusNotFound {
					err = errGone
				}
			}

			lost <- err
		}()
	}

	eventually(t, "all are sent", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()

		return len(p.pending) == 2*half+1
	})

	cancel()

	for range half {
		if err := <-left; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}

	if err := syscall.Kill(p.cmd.Process.Pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}

	// What it may have read, and what it never got.
	for range half + 1 {
		if err := <-lost; !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errGone) {
			t.Errorf("got %v", err)
		}
	}
}

func TestStatelessProcessThatIsGone(t *testing.T) {
	f := start(t, testConfig(t, "plain"))
	body, header := statelessRequest("1", "tools/list", "")

	f.post("", body, header...)

	f.mu.Lock()
	p := f.common
	f.mu.Unlock()

	// It closed its input, which nobody has noticed.
	p.mu.Lock()
	p.closed = true
	p.mu.Unlock()

	if status, text := f.post("", body, header...); status != http.StatusNotFound || !strings.Contains(text, "-32601") {
		t.Errorf("got %d %s", status, text)
	}

	if n := strings.Count(f.log.String(), "was started"); n != 2 {
		t.Errorf("%d processes were started", n)
	}
}
