package demo

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// timeline prints what happened, each line with the time since the demo began. It is safe for concurrent use.
type timeline struct {
	out   io.Writer
	began time.Time

	mu sync.Mutex
}

// Who a line is about.
const (
	whoBackend = "backend"
	whoAgents  = "agents"
	whoSidecar = "sidecar"
	whoRefresh = "refresh"
)

// say prints a line about what happens now.
func (t *timeline) say(who, format string, args ...any) {
	t.sayAt(time.Now(), who, format, args...)
}

// sayAt prints a line about what happened at a time. Lines come in the order in which they are said.
func (t *timeline) sayAt(at time.Time, who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "%7.3fs  %-8s %s\n", max(at.Sub(t.began), 0).Seconds(), who, fmt.Sprintf(format, args...))
}

// chapter prints a heading.
func (t *timeline) chapter(format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	head := fmt.Sprintf(format, args...)
	fmt.Fprintf(t.out, "\n── %s %s\n", head, strings.Repeat("─", max(72-len([]rune(head)), 0)))
}

// result prints a line of a summary.
func (t *timeline) result(name, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintf(t.out, "  %-44s %s\n", name, fmt.Sprintf(format, args...))
}

// count is "1 conversation", "3 conversations".
func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// milliseconds is a duration as people compare it.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%d ms", d.Round(time.Millisecond).Milliseconds())
}
