package main

import (
	"context"
	"fmt"
	"time"
)

// round is what one program did under load.
type round struct {
	perSecond, p50, p99 float64 // times in microseconds
	cpu                 float64 // microseconds of each request
	broken              float64 // answers that broke off
}

// calls measures tool calls.
func calls(title, tool string, stateless bool) func(context.Context, *bench) error {
	return func(ctx context.Context, b *bench) error {
		all, stop, err := b.startAll(ctx)
		if err != nil {
			return err
		}
		defer stop()

		loads := make([]*load, len(all))
		rounds := make([][]round, len(all))

		for i, p := range all {
			if loads[i], err = b.newLoad(p.addr, tool, stateless); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}

			if _, err := b.drive(ctx, loads[i], min(b.time, time.Second)); err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
		}

		for range b.rounds {
			for i, p := range all {
				r, err := b.round(ctx, p, loads[i])
				if err != nil {
					return fmt.Errorf("%s: %w", p.name, err)
				}

				rounds[i] = append(rounds[i], r)
			}
		}

		t := newTable(title, "", "requests/s", "p50 ms", "p99 ms", "CPU µs/request", "peak MiB", "requests/s ×", "CPU ×", "broken off")

		for i, p := range all {
			rows := []float64{
				median(rounds[i], func(r round) float64 { return r.perSecond }),
				median(rounds[i], func(r round) float64 { return r.p50 / 1000 }),
				median(rounds[i], func(r round) float64 { return r.p99 / 1000 }),
			}
			t.row(p.name, rows...)

			if p.cmd == nil { // of the backend, nothing more is of interest
				continue
			}

			t.add(median(rounds[i], func(r round) float64 { return r.cpu }), float64(p.memory("VmHWM"))/1024)
			t.add(ratio(rounds, i, func(r round) float64 { return r.perSecond }), ratio(rounds, i, func(r round) float64 { return r.cpu }), sum(rounds[i], func(r round) float64 { return r.broken }))
		}

		return t.print(b.out)
	}
}

// ratio is the median of the ratios to the reverse proxy, round by round: what else
// the machine does hits both alike.
func ratio(rounds [][]round, i int, of func(round) float64) float64 {
	ratios := make([]float64, 0, len(rounds[i]))
	for n, r := range rounds[i] {
		ratios = append(ratios, of(r)/of(rounds[1][n]))
	}

	return median(ratios, func(f float64) float64 { return f })
}

func (b *bench) round(ctx context.Context, p *program, l *load) (round, error) {
	if p.cmd == nil {
		res, err := b.drive(ctx, l, b.time)
		return round{perSecond: res.perSecond, p50: res.p50, p99: res.p99, broken: float64(res.broken)}, err
	}

	before, err := p.cpu()
	if err != nil {
		return round{}, err
	}

	res, err := b.drive(ctx, l, b.time)
	if err != nil {
		return round{}, err
	}

	after, err := p.cpu()
	if err != nil {
		return round{}, err
	}

	used := float64((after - before).Microseconds())

	return round{res.perSecond, res.p50, res.p99, used / float64(res.requests), float64(res.broken)}, nil
}
