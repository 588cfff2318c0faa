//go:build unix

package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
	"github.com/mcp-sidecar/mcp-sidecar/e2e/testbackend/journal"
)

// result is what came of a call.
type result struct {
	answer answer
	err    error
}

// begin calls a tool and returns where its answer will be, once the backend has
// begun to run it.
func begin(t *testing.T, b *backend, c *client, id, tool string) <-chan result {
	t.Helper()
	before := b.ran(tool)
	done := make(chan result, 1)
	go func() {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%q,"method":"tools/call","params":{"name":%q,"arguments":{"ms":2000}}}`, id, tool)
		a, err := c.post(context.WithoutCancel(t.Context()), body)
		done <- result{a, err}
	}()
	proc.Eventually(t, "the backend to run "+tool, func() bool { return b.ran(tool) > before })
	return done
}

// TestInterruptedCallRunsOnce kills the backend while it runs a tool that must
// not run twice.
func TestInterruptedCallRunsOnce(t *testing.T) {
	t.Parallel()
	b := startBackend(t, "-slow", "2s")
	s := startSidecar(t, b)
	c := connect(t, s.url())

	done := begin(t, b, c, "one", "transfer")
	b.kill()
	b.start("v1")
	r := <-done
	if r.err != nil || r.answer.status != 200 || r.answer.message == nil {
		t.Fatalf("the call ended with %d %s %v", r.answer.status, r.answer.body, r.err)
	}
	m := r.answer.message
	if string(m.ID) != `"one"` || m.Error == nil || m.Error.Code != -31002 || !m.Error.Data.MayHaveExecuted {
		t.Errorf("the call ended with %s", r.answer.body)
	}
	// One that comes while nobody is there waits, and runs once too.
	b.kill()
	waiting := make(chan result, 1)
	go func() {
		text, err := c.call(context.WithoutCancel(t.Context()), "transfer", nil)
		waiting <- result{answer{body: text}, err}
	}()
	proc.Eventually(t, "the call to be held", func() bool { return s.metric("held_requests") == 1 })
	b.start("v1")
	if r := <-waiting; r.err != nil || r.answer.body != "transferred" {
		t.Errorf("the call that was held ended with %q %v", r.answer.body, r.err)
	}
	if n := b.ran("transfer"); n != 2 {
		t.Errorf("two calls ran %d times", n)
	}
}

// TestInterruptedReadIsSentAgain kills the backend while it runs a tool that only
// reads: the client gets the answer of the next process.
func TestInterruptedReadIsSentAgain(t *testing.T) {
	long(t)
	t.Parallel()
	tools := writeFile(t, "tools.json", `[{"name": "slow", "description": "Reads.", "annotations": {"readOnlyHint": true}}]`)
	b := startBackend(t, "-tools", tools)
	s := startSidecar(t, b)
	c := connect(t, s.url())

	done := begin(t, b, c, "one", "slow")
	b.kill()
	b.start("v1")
	r := <-done
	if r.err != nil || r.answer.message == nil || string(r.answer.message.ID) != `"one"` || r.answer.message.Error != nil {
		t.Errorf("the call ended with %d %s %v", r.answer.status, r.answer.body, r.err)
	}
	if n := b.ran("slow"); n != 2 {
		t.Errorf("the tool ran %d times, want 2: once in each process", n)
	}
}

// TestOneHandshake lets fifty calls come at once on one session that the new
// process doesn't know, in all the ways in which servers say so.
func TestOneHandshake(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{
		"404":      nil,
		"strict":   {"-reject-until-initialized"},
		"400":      {"-unknown-session", "400"},
		"401":      {"-unknown-session", "401"},
		"503":      {"-unknown-session", "503"},
		"200error": {"-unknown-session", "200error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "strict" {
				long(t)
			}
			b := startBackend(t, args...)
			s := startSidecar(t, b)
			c := connect(t, s.url())
			others := []*client{connect(t, s.url()), connect(t, s.url())}

			b.kill()
			b.start("v1")
			var wg sync.WaitGroup
			for i := range 50 {
				wg.Go(func() {
					if sum, err := c.call(t.Context(), "add", map[string]int{"a": i, "b": 1}); err != nil || sum != strconv.Itoa(i+1) {
						t.Errorf("call %d: %q, %v", i, sum, err)
					}
				})
			}
			wg.Wait()
			for _, c := range others {
				if _, err := c.call(t.Context(), "add", map[string]int{"a": 1, "b": 1}); err != nil {
					t.Error(err)
				}
			}
			if n := b.ran("add"); n != 52 {
				t.Errorf("52 calls ran %d times", n)
			}
			if got := handshakes(t, b.entries(b.p.PID())); got != 3 {
				t.Errorf("there were %d sessions for three clients", got)
			}
		})
	}
}

// handshakes returns how many sessions the clients of the tests have at one
// process, and fails the test unless each began as it should.
func handshakes(t *testing.T, entries []journal.Entry) int {
	t.Helper()
	sessions := map[string][]string{}
	ours := map[string]bool{}
	for _, e := range entries {
		if e.Event == journal.Refused {
			continue // never on a session that the process made, see below
		}
		sessions[e.Session] = append(sessions[e.Session], e.Event)
		if e.Event == "initialize" {
			var params struct {
				ProtocolVersion string            `json:"protocolVersion"`
				ClientInfo      map[string]string `json:"clientInfo"`
			}
			if json.Unmarshal(mustJSON(t, e.Params), &params) == nil && params.ClientInfo["name"] == "e2e" {
				ours[e.Session] = params.ProtocolVersion == revision && params.ClientInfo["version"] == "1"
			}
		}
	}
	for id, as := range ours {
		seen := sessions[id]
		if len(seen) < 2 || seen[0] != "initialize" || seen[1] != "notifications/initialized" ||
			slices.Contains(seen[1:], "initialize") || slices.Contains(seen[2:], "notifications/initialized") {
			t.Errorf("a session began as %q", seen)
		}
		if !as {
			t.Error("initialize didn't say what the client's own did")
		}
	}
	for _, e := range entries {
		if _, made := sessions[e.Session]; made && e.Event == journal.Refused {
			t.Errorf("%s was refused on a session of this process", e.Method)
		}
	}
	return len(ours)
}
