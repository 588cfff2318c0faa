//go:build sdks && unix

package sdks

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// event is a line that a client printed. The package's comment says what they mean.
type event struct {
	Event    string   `json:"event"`
	Protocol string   `json:"protocol"`
	Tools    []string `json:"tools"`
	Error    string   `json:"error"`
}

// patience is how long to wait for a client: where many Pythons start at once, a second's work takes a while.
const patience = 4 * proc.Patience

// client is a process that calls a tool again and again, and the ledger of what it said.
type client struct {
	t    *testing.T
	name string
	p    *proc.Process

	read     int    // lines
	protocol string // empty while it isn't connected
	calls    int    // that have succeeded
	told     int
	tools    []string // of its newest list
	failures []string
	done     bool
}

func startClient(t *testing.T, name string, command []string, url string) *client {
	t.Helper()
	return &client{t: t, name: name, p: proc.Start(t, command[0], append(command[1:len(command):len(command)], url)...)}
}

// look reads what the client has printed since, and fails the test when something went wrong.
func (c *client) look() {
	c.t.Helper()
	lines := c.p.Lines(c.read)
	c.read += len(lines)
	for _, line := range lines {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			c.failures = append(c.failures, fmt.Sprintf("%q: %v", line, err))
			continue
		}
		if e.Error != "" {
			c.failures = append(c.failures, fmt.Sprintf("%s, after %d calls: %s", e.Event, c.calls, e.Error))
			continue
		}
		switch e.Event {
		case "connected":
			c.protocol = e.Protocol
		case "tools":
			c.tools = e.Tools
		case "call":
			c.calls++
		case "told":
			c.told++
		case "done":
			c.done = true
		}
	}
	select {
	case <-c.p.Done():
		if !c.done {
			c.failures = append(c.failures, "the client has ended")
		}
	default:
	}
	if len(c.failures) > 0 {
		c.t.Fatalf("%s (%s): %q", c.name, c.protocol, c.failures)
	}
}

// waitFor waits until something holds for what the client said.
func (c *client) waitFor(what string, ok func() bool) {
	c.t.Helper()
	proc.Within(c.t, patience, fmt.Sprintf("%s (%s): %s", c.name, c.protocol, what), func() bool {
		c.t.Helper()
		c.look()
		return ok()
	})
}

// waitCalls waits until the client has completed a call that began from now on.
func (c *client) waitCalls() {
	c.t.Helper()
	c.look()
	goal := c.calls + 2 // the first of them may have begun before
	c.waitFor("calls", func() bool { return c.calls >= goal })
}

// offers reports whether the newest list has the tools of this version, and not the other's.
func (c *client) offers(version string) bool {
	return slices.Contains(c.tools, "count") == (version == "v1") && slices.Contains(c.tools, "multiply") == (version == "v2")
}

// stop lets the client finish, and reads its last words.
func (c *client) stop() {
	c.t.Helper()
	c.look()
	code := c.p.Terminate()
	c.look()
	if code != 0 || !c.done {
		c.t.Errorf("%s (%s) ended with exit code %d", c.name, c.protocol, code)
	}
}
