package stdio

import (
	"context"
	"errors"
	"io"
	"net/http"
	"path/filepath"
	"strings"
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
