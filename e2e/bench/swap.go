package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// heldCalls is how many clients call while there is no backend.
	heldCalls = 100
	// awayTime is how long there is none.
	awayTime = 500 * time.Millisecond
)

// swaps measures what happens after a new process answers: one with a tool more than
// the one before.
func swaps(ctx context.Context, b *bench) error {
	t := newTable("after a new process with one more tool answers, ms; medians", "conversations", "swap known", "slowest",
		"first held call", "last of "+strconv.Itoa(heldCalls), "first refreshed", "last refreshed", "slowest")

	counts := []int{1, 100, 1000, 10_000}
	if b.short {
		counts = counts[:2]
	}

	a, err := newAgents()
	if err != nil {
		return err
	}
	defer a.close()

	for _, n := range counts {
		if err := b.swaps(ctx, t, a, n); err != nil {
			return fmt.Errorf("%d conversations: %w", n, err)
		}
	}

	return t.print(b.out)
}

// swapped is one swap: what happened how long after the new process answered, in
// milliseconds.
type swapped struct{ known, firstHeld, lastHeld, firstRefreshed, lastRefreshed float64 }

func (b *bench) swaps(ctx context.Context, t *table, a *agents, n int) error {
	dir, err := os.MkdirTemp(b.dir, "swap")
	if err != nil {
		return err
	}

	addr, err := freeAddr()
	if err != nil {
		return err
	}

	w := &swapping{b: b, agents: a, addr: addr, file: filepath.Join(dir, "answers"), conversations: n, events: make(chan time.Time, 1)}
	if err := w.startBackend(ctx); err != nil {
		return err
	}
	defer func() { w.backend.stop() }()

	at := filePlace(dir, a)
	if err := b.prepare(ctx, addr, at, n); err != nil {
		return err
	}

	if w.s, err = b.launchSidecar(ctx, addr, at.args...); err != nil {
		return err
	}
	defer w.s.stop()

	if _, err := w.s.waitSettled(ctx); err != nil {
		return err
	}

	for range heldCalls {
		s, err := openSession(w.s.addr)
		if err != nil {
			return err
		}
		defer s.close()

		w.sessions = append(w.sessions, s)
	}

	if err := w.readEvents(ctx); err != nil {
		return err
	}

	var all []swapped

	for range b.rounds {
		one, err := w.swap(ctx)
		if err != nil {
			return err
		}

		all = append(all, one)
	}

	of := func(f func(swapped) float64) float64 { return median(all, f) }
	known, refreshed := func(s swapped) float64 { return s.known }, func(s swapped) float64 { return s.lastRefreshed }
	t.row(strconv.Itoa(n), of(known), slowest(all, known), of(func(s swapped) float64 { return s.firstHeld }), of(func(s swapped) float64 { return s.lastHeld }),
		of(func(s swapped) float64 { return s.firstRefreshed }), of(refreshed), slowest(all, refreshed))

	return nil
}

// swapping is a sidecar whose backend is replaced again and again.
type swapping struct {
	b             *bench
	agents        *agents
	addr, file    string // of the backend, and where it writes since when it answers
	backend       *program
	generation    int
	s             *sidecar
	sessions      []*session
	conversations int
	events        chan time.Time // when the sidecar told of a swap
}

func (w *swapping) startBackend(ctx context.Context) (err error) {
	w.generation++
	w.backend, err = start(ctx, "backend", w.addr, w.b.self, "backend", w.addr, strconv.Itoa(w.generation), w.file)

	return err
}

// readEvents notes when the sidecar tells whoever listens that there was a swap.
func (w *swapping) readEvents(ctx context.Context) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+w.s.admin+"/v1/events", http.NoBody)
	if err != nil {
		return err
	}

	resp, err := http.DefaultClient.Do(r) //nolint:bodyclose // the goroutine does
	if err != nil {
		return err
	}

	go func() { // ends with the sidecar
		defer resp.Body.Close()

		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if strings.Contains(lines.Text(), `"type":"swap"`) {
				w.events <- time.Now()
			}
		}
	}()

	return nil
}

func (w *swapping) swap(ctx context.Context) (swapped, error) {
	w.agents.forget()
	w.backend.stop()

	var (
		wg       sync.WaitGroup
		errs     [heldCalls]error
		answered [heldCalls]time.Time
	)

	for i, s := range w.sessions {
		wg.Go(func() {
			errs[i] = callTool(s)
			answered[i] = time.Now()
		})
	}

	if err := pause(ctx, awayTime); err != nil {
		return swapped{}, err
	}

	if err := w.startBackend(ctx); err != nil {
		return swapped{}, err
	}

	wg.Wait()

	if err := errors.Join(errs[:]...); err != nil {
		return swapped{}, err
	}

	var first, last, known time.Time

	if err := w.s.wait(ctx, "conversations aren't refreshed", func() (ok bool) {
		first, last, ok = w.agents.times(w.conversations)
		return ok
	}); err != nil {
		return swapped{}, err
	}

	select {
	case known = <-w.events:
	default:
		return swapped{}, errors.New("the sidecar has told of no swap")
	}

	// What was refreshed is written down, too, before the next swap.
	if err := w.s.wait(ctx, "conversations aren't current", func() bool { return w.s.holds(ctx, w.conversations) == nil }); err != nil {
		return swapped{}, err
	}

	text, err := os.ReadFile(w.file)
	if err != nil {
		return swapped{}, err
	}

	nanos, err := strconv.ParseInt(string(text), 10, 64)
	since := func(t time.Time) float64 { return float64(t.Sub(time.Unix(0, nanos)).Microseconds()) / 1000 }
	slices.SortFunc(answered[:], time.Time.Compare)

	return swapped{since(known), since(answered[0]), since(answered[heldCalls-1]), since(first), since(last)}, err
}

// callTool makes a call that must have a result.
func callTool(s *session) error {
	request := post(s.addr, "Mcp-Protocol-Version: 2025-11-25\r\nMcp-Session-Id: "+s.id+"\r\n",
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"`+toolSmall+`"}}`)
	if _, err := s.c.Write(request); err != nil {
		return err
	}

	resp, err := http.ReadResponse(s.r, nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()

	body, err := io.ReadAll(resp.Body)
	if err == nil && !strings.Contains(string(body), `"result"`) {
		err = fmt.Errorf("%w: %s %s", errStatus, resp.Status, body)
	}

	return err
}
