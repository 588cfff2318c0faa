package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// settleTime is how long a program is left alone before its memory is read.
const settleTime = 3 * time.Second

// opening bounds how many sessions are opened at one time.
const opening = 16

// idleStreams measures the memory of sessions that do nothing but listen.
func idleStreams(ctx context.Context, b *bench) error {
	t := newTable("idle sessions, each with an open GET stream", "", "sessions", "MiB before", "MiB with them", "KiB per session", "opened in s")

	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return err
	}

	counts := []int{1000, b.sessions}
	if b.sessions <= counts[0] {
		counts = counts[1:]
	}

	for _, n := range counts {
		// A proxy needs two descriptors for each.
		if most := int(limit.Max)/2 - 200; n > most {
			fmt.Fprintf(b.out, "\n%d sessions would need more open files than the %d that are allowed: %d are opened\n", n, limit.Max, most)
			n = most
		}

		for _, name := range []string{nameReverse, nameNginx, nameSidecar} {
			if name == nameNginx && b.nginx == "" {
				continue
			}

			if err := b.idle(ctx, t, name, n); err != nil {
				return fmt.Errorf("%s with %d sessions: %w", name, n, err)
			}
		}
	}

	return t.print(b.out)
}

func (b *bench) idle(ctx context.Context, t *table, name string, n int) error {
	p, err := b.start(ctx, name)
	if err != nil {
		return err
	}
	defer p.stop()

	settle := settleTime
	if b.short {
		settle = b.time
	}

	if err := pause(ctx, settle); err != nil {
		return err
	}

	before := p.memory("VmRSS")
	start := time.Now()
	open, err := openStreams(p.addr, n)

	defer func() {
		for _, s := range open {
			s.close()
		}
	}()

	if err != nil {
		return err
	}

	took := time.Since(start)

	if err := pause(ctx, settle); err != nil {
		return err
	}

	after := p.memory("VmRSS")

	t.row(name, float64(n), float64(before)/1024, float64(after)/1024, float64(after-before)/float64(n), took.Seconds())

	return nil
}

func openStreams(addr string, n int) ([]*session, error) {
	var (
		mu    sync.Mutex
		wg    sync.WaitGroup
		all   []*session
		first error
	)

	for i := range opening {
		wg.Go(func() {
			for range (n + opening - 1 - i) / opening {
				s, err := openSession(addr)
				if err == nil {
					if err = s.listen(""); err != nil {
						s.close()
					}
				}

				mu.Lock()

				if err != nil && first == nil {
					first = err
				}

				if err == nil {
					all = append(all, s)
				}

				failed := first != nil
				mu.Unlock()

				if failed {
					return
				}
			}
		})
	}

	wg.Wait()

	return all, first
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// eventLatency measures how long an event takes from the backend's write to the
// client, with one event every 2 ms on one stream of an otherwise idle program.
func eventLatency(ctx context.Context, b *bench) error {
	all, stop, err := b.startAll(ctx)
	if err != nil {
		return err
	}
	defer stop()

	const tick = 2 * time.Millisecond

	rounds := make([][]round, len(all))

	for range b.rounds {
		for i, p := range all {
			times, err := latencies(p.addr, tick, int(max(b.time, 300*time.Millisecond)/tick))
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}

			at := func(q float64) float64 { return float64(times[int(q*float64(len(times)-1))].Nanoseconds()) / 1000 }
			rounds[i] = append(rounds[i], round{p50: at(0.5), p99: at(0.99)})
		}
	}

	t := newTable("an event on a GET stream, from the backend's write to the client", "", "p50 µs", "p99 µs")

	for i, p := range all {
		t.row(p.name, median(rounds[i], func(r round) float64 { return r.p50 }), median(rounds[i], func(r round) float64 { return r.p99 }))
	}

	return t.print(b.out)
}

func latencies(addr string, tick time.Duration, n int) ([]time.Duration, error) {
	s, err := openSession(addr)
	if err != nil {
		return nil, err
	}
	defer s.close()

	if err := s.listen(tickHeader + ": " + tick.String() + "\r\n"); err != nil {
		return nil, err
	}

	times := make([]time.Duration, 0, n)

	for len(times) < n {
		line, err := s.r.ReadString('\n')
		if err != nil {
			return nil, err
		}

		_, rest, ok := strings.Cut(line, `"data":"`)
		if !ok {
			continue
		}

		text, _, _ := strings.Cut(rest, `"`)

		sent, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return nil, err
		}

		times = append(times, time.Duration(time.Now().UnixNano()-sent))
	}

	slices.Sort(times)

	return times, nil
}
