package main

import (
	"context"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"time"
)

const (
	// heapRoom is how much may be allocated between two collections at least. The
	// runtime's own minimum makes a small heap under load be collected many times
	// a second.
	heapRoom = 16 << 20
	// heapShare is the same as a share of what is in use: ten thousand listening
	// sessions are a lot of memory that nothing happens with, and doubling it, as
	// is the rule, buys nothing.
	heapShare = 4

	heapLook = time.Second
)

// collectGarbage paces the garbage collector until ctx ends. Where the operator
// has set GOGC, that counts.
func collectGarbage(ctx context.Context) error {
	if os.Getenv("GOGC") != "" {
		<-ctx.Done()
		return nil
	}
	tick := time.NewTicker(heapLook)
	defer tick.Stop()
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	percent := 100
	for first := true; ; first = false {
		metrics.Read(live)
		if next := gcPercent(live[0].Value.Uint64()); next > percent+percent/4 || next < percent-percent/4 {
			percent = next
			debug.SetGCPercent(percent)
		}
		select {
		case <-tick.C:
			if first {
				debug.FreeOSMemory() // what the start needed and left
			}
		case <-ctx.Done():
			debug.SetGCPercent(100)
			return nil
		}
	}
}

// gcPercent is by how much a heap may grow, in percent of what is in use.
func gcPercent(live uint64) int {
	const least = 4 << 20 // below that the runtime doesn't collect anyway
	live = max(live, least)
	return int(100 * max(heapRoom, live/heapShare) / live)
}
