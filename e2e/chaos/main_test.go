//go:build chaos && unix

package chaos

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// The commands that TestMain builds.
var sidecarPath, backendPath string

func TestMain(m *testing.M) {
	proc.Main(m, func(ctx context.Context, dir string) error {
		var race []string
		if raceEnabled { // data races of the sidecar are found too
			race = []string{"-race"}
		}
		sidecarPath, backendPath = filepath.Join(dir, "mcp-sidecar"), filepath.Join(dir, "testbackend")
		return errors.Join(proc.Build(ctx, dir, append(race, proc.Sidecar)...), proc.Build(ctx, dir, proc.Testbackend))
	}, func() error { return goleak.Find() })
}

// duration is how long things fail.
func duration(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("CHAOS_DURATION")
	if text == "" {
		return 3 * time.Minute
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("CHAOS_DURATION: %v", err)
	}
	return d
}

// number is the value of an environment variable.
func number(t *testing.T, name string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// logLevel is the log level of the sidecar.
func logLevel() string {
	if level := os.Getenv("CHAOS_LOG_LEVEL"); level != "" {
		return level
	}
	return "info"
}

// random returns the source of one actor of a run.
func random(seed uint64, actor int) *rand.Rand { return rand.New(rand.NewPCG(seed, uint64(actor))) }

// between returns a time between the two.
func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)+1))
}
