// Command bench measures the sidecar next to a bare httputil.ReverseProxy and
// nginx: the same load, the same backend, one after the other in each round, and
// every program a process of its own.
//
//	go run ./e2e/bench [-short] [-rounds 5] [-time 2s] [-only small,sse] [-sessions 10000]
//
// It prints tables of medians. Only the ratios of one run mean anything: machines,
// and what else runs on them, differ.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

// options say what is measured, and for how long.
type options struct {
	only        string
	rounds      int
	time        time.Duration
	connections int
	sessions    int
	short       bool
	sidecar     string
	generator   string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout)

	stop()

	if errors.Is(err, flag.ErrHelp) {
		return
	}

	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// run is main, or one of the programs that are measured against: those are this
// one, started again.
func run(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 1 {
		switch args[0] {
		case "backend":
			return runBackend(args[1:])
		case "reverse":
			return runReverse(args[1], args[2])
		}
	}

	o := options{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&o.only, "only", "", "comma-separated `modes`: "+strings.Join(modeNames(), ", "))
	f.IntVar(&o.rounds, "rounds", 5, "rounds, of which the medians are shown")
	f.DurationVar(&o.time, "time", 2*time.Second, "load on each program in each round")
	f.IntVar(&o.connections, "connections", 32, "connections of the load, each with a session")
	f.IntVar(&o.sessions, "sessions", 10000, "most idle sessions with an open stream")
	f.BoolVar(&o.short, "short", false, "one short round of everything, to see that it works")
	f.StringVar(&o.sidecar, "sidecar", "", "the sidecar's `binary` (default: built from this tree)")
	f.StringVar(&o.generator, "load", "", "wrk or go (default: wrk where it is installed)")

	if err := f.Parse(args); err != nil {
		return err
	}

	if o.short {
		o.rounds, o.time, o.sessions = 1, 300*time.Millisecond, min(o.sessions, 200)

		if o.generator == "" {
			o.generator = "go" // wrk counts in whole seconds
		}
	}

	b, err := newBench(ctx, o, out)
	if err != nil {
		return err
	}
	defer b.close()

	return b.run(ctx)
}
