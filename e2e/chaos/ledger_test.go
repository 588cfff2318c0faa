//go:build chaos && unix

package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// ending is how a request ended for its client.
type ending string

const (
	open    ending = "open"    // it hasn't
	result  ending = "result"  // with a result
	failed  ending = "error"   // with a JSON-RPC error
	unknown ending = "unknown" // the sidecar was away
	left    ending = "left"    // the client didn't wait for the end
)

// entry is a request in the ledger.
type entry struct {
	server, client string
	tag            string // in the arguments of a tool call; no other call has it
	method, tool   string
	began, ended   time.Time
	ending         ending
	err            *rpcError // of failed
}

func (e *entry) line(l *timeline) string {
	s := fmt.Sprintf("%s %s %s %s from %s", e.server, e.tag, e.method, e.tool, l.at(e.began))
	if !e.ended.IsZero() {
		s += " to " + l.at(e.ended)
	}
	s += ": " + string(e.ending)
	if e.err != nil {
		s += fmt.Sprintf(" %d %q %s", e.err.Code, e.err.Message, e.err.Data)
	}
	return s
}

// ledger is what clients asked, what came back, and what was wrong with that.
type ledger struct {
	t    *testing.T
	time *timeline

	mu      sync.Mutex
	entries []*entry
	defects []string
}

// begin enters a request.
func (l *ledger) begin(e entry) *entry {
	e.began, e.ending = time.Now(), open
	l.mu.Lock()
	defer l.mu.Unlock()
	l.entries = append(l.entries, &e)
	return &e
}

// end notes how a request ended.
func (l *ledger) end(e *entry, how ending, err *rpcError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ended, e.ending, e.err = time.Now(), how, err
}

// defect notes what must not happen.
func (l *ledger) defect(e *entry, format string, a ...any) {
	text := fmt.Sprintf(format, a...)
	l.mu.Lock()
	if e != nil {
		text = e.line(l.time) + "\n\t" + text
	}
	l.defects = append(l.defects, text)
	l.mu.Unlock()
	l.time.note("DEFECT %s", text)
}

// report fails the test if there were defects.
func (l *ledger) report() {
	l.t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	const most = 40
	for i, d := range l.defects {
		if i == most {
			l.t.Errorf("and %d more", len(l.defects)-most)
			break
		}
		l.t.Errorf("%s", d)
	}
}

// summary counts the endings.
func (l *ledger) summary() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	counts := map[string]int{}
	for _, e := range l.entries {
		key := string(e.ending)
		if e.err != nil {
			key += fmt.Sprintf(" %d", e.err.Code)
			if e.err.own() {
				key += " " + e.err.data().Reason
			}
		}
		counts[key]++
	}
	var parts []string
	for key, n := range counts {
		parts = append(parts, fmt.Sprintf("%s: %d", key, n))
	}
	slices.Sort(parts)
	return fmt.Sprintf("%d requests: %s", len(l.entries), strings.Join(parts, ", "))
}

// results counts the requests that ended with a result, by server and tool (or method).
func (l *ledger) results() map[string]map[string]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := map[string]map[string]int{}
	for _, e := range l.entries {
		if n[e.server] == nil {
			n[e.server] = map[string]int{}
		}
		if e.ending == result {
			n[e.server][cmp.Or(e.tool, e.method)]++
		}
	}
	return n
}

// slowest returns the requests of a server that took longest.
func (l *ledger) slowest(server string) (lines []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := slices.DeleteFunc(slices.Clone(l.entries), func(e *entry) bool { return e.server != server || e.ended.IsZero() })
	slices.SortFunc(all, func(a, b *entry) int { return cmp.Compare(b.ended.Sub(b.began), a.ended.Sub(a.began)) })
	for _, e := range all[:min(3, len(all))] {
		lines = append(lines, e.line(l.time))
	}
	return lines
}

// runs is how often a call was begun and ended by the processes of a backend.
type runs struct{ begins, ends int }

// repeatable reports whether a tool may run twice for one call.
func repeatable(tool string) bool { return tool == "balance" || tool == "set_limit" }

// settle compares the ledger with the journal of a server's backend.
func (l *ledger) settle(server string, journaled []journal.Entry) {
	ran := map[string]runs{}
	for _, j := range journaled {
		if j.Event != "tools/call" {
			continue
		}
		tag := tagOf(j.Args)
		r := ran[tag]
		if j.Phase == journal.Begin {
			r.begins++
		} else {
			r.ends++
		}
		ran[tag] = r
	}
	l.mu.Lock()
	calls := slices.DeleteFunc(slices.Clone(l.entries), func(e *entry) bool { return e.server != server || e.method != "tools/call" })
	l.mu.Unlock()
	for _, e := range calls {
		r := ran[e.tag]
		delete(ran, e.tag)
		switch {
		case e.ending == open:
			l.defect(e, "it was never answered; it ran %d times", r.begins)
		case r.begins > 1 && !repeatable(e.tool):
			l.defect(e, "it ran %d times", r.begins)
		case e.ending == result && (r.begins < 1 || r.ends < 1):
			l.defect(e, "it has a result, and was begun %d times and ended %d times", r.begins, r.ends)
		case e.ending == result && !repeatable(e.tool) && r.ends != 1:
			l.defect(e, "it has a result, and ended %d times", r.ends)
		case e.ending == failed && e.err.own() && !e.err.data().MayHaveExecuted && r.begins > 0 && e.tool != "balance":
			l.defect(e, "it is said not to have run, and ran %d times", r.begins)
		}
	}
	for tag, r := range ran {
		l.defect(nil, "%s: %s ran %d times, and nobody called it", server, tag, r.begins)
	}
}

// tagOf is the tag in the arguments of a call.
func tagOf(args any) string {
	named, _ := args.(map[string]any)
	tag, _ := named["tag"].(string)
	return tag
}
