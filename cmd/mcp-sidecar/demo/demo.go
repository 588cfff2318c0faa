package demo

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/health"
)

// Config says what to show.
type Config struct {
	Executable    string // this program
	Conversations int
	Stateless     bool // a backend that keeps no sessions
	Out           io.Writer
}

// away is how long there is no backend at all in a redeployment.
const away = 1500 * time.Millisecond

// quiet is how long the demo watches for refreshes that shouldn't come.
const quiet = 1500 * time.Millisecond

// errNotShown is returned when the demo ran and didn't come out as it should; the timeline tells why.
var errNotShown = errors.New("the demo failed: see above")

// Run shows the demo. It returns nil only if every conversation ended with exactly the new tools, and no call failed.
func Run(ctx context.Context, cfg Config) error {
	if cfg.Conversations < 1 || cfg.Conversations > 1000 {
		return fmt.Errorf("--conversations: want 1 to 1000, got %d", cfg.Conversations)
	}
	dir, err := os.MkdirTemp("", "mcp-sidecar-demo-")
	if err != nil {
		return fmt.Errorf("making a folder for the demo: %w", err)
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	d := &demo{cfg: cfg, timeline: &timeline{out: cfg.Out, began: time.Now()}}
	defer d.stop()
	if err := d.start(ctx, dir); err != nil {
		return err
	}
	shown := true
	for _, act := range []struct {
		title, version string
		changes        bool
	}{
		{"a new version, with other tools", V2, true},
		{"the same version again", V2, false},
	} {
		ok, err := d.redeploy(ctx, act.title, act.version, act.changes)
		if err != nil {
			return err
		}
		shown = shown && ok
	}
	if !shown {
		fmt.Fprintf(cfg.Out, "\nThe end of the sidecar's log:\n%s", d.sidecar.lastLog())
		return errNotShown
	}
	fmt.Fprintf(cfg.Out, "\nDone: no call failed, and every conversation has exactly the tools of the running backend.\n")
	return nil
}

type demo struct {
	*timeline

	cfg     Config
	address string // the backend's
	backend *process
	sidecar *sidecar
	agents  *agents
	feed    sync.WaitGroup
	endFeed context.CancelFunc
	wasAway bool // of the feed alone

	mu          sync.Mutex
	swap        time.Time // when the newest swap was detected
	lastRefresh time.Time
}

// start brings up everything and waits until every conversation is registered and up to date.
func (d *demo) start(ctx context.Context, dir string) error {
	kind := "stateful"
	if d.cfg.Stateless {
		kind = "stateless"
	}
	d.chapter("a %s backend, an agent server with %s, and the sidecar between them", kind, count(d.cfg.Conversations, "conversation"))
	addrs, err := freeAddresses(ctx, 1)
	if err != nil {
		return err
	}
	d.address = addrs[0]
	if err := d.startBackend(ctx, V1); err != nil {
		return err
	}
	if d.agents, err = startAgents(ctx, rand.Text()); err != nil {
		return err
	}
	if d.sidecar, err = startSidecar(ctx, d.cfg.Executable, dir, d.address, d.agents); err != nil {
		return err
	}
	feed, endFeed := context.WithCancel(ctx)
	d.endFeed = endFeed
	d.feed.Go(func() {
		if err := d.sidecar.events(feed, d.see); err != nil {
			d.say(whoSidecar, "%v", err)
		}
	})
	d.say(whoSidecar, "serves the backend at %s/mcp", d.sidecar.url)
	if err := eventually(ctx, 10*time.Second, func() (bool, error) { return d.settled(ctx) }); err != nil {
		return fmt.Errorf("waiting for the sidecar to know the tools: %w", err)
	}
	if err := d.agents.talk(ctx, d.sidecar.url, d.cfg.Conversations); err != nil {
		return err
	}
	if err := eventually(ctx, 10*time.Second, func() (bool, error) { return d.allCurrent(ctx) }); err != nil {
		return fmt.Errorf("waiting for the conversations to be registered: %w", err)
	}
	d.say(whoAgents, "%s registered by their traffic; their agents call %q all the time", count(d.cfg.Conversations, "conversation"), callTool)
	return nil
}

func (d *demo) startBackend(ctx context.Context, version string) error {
	p, err := startBackend(ctx, d.cfg.Executable, BackendConfig{Version: version, Listen: d.address, Stateless: d.cfg.Stateless})
	if err != nil {
		return err
	}
	d.backend = p
	var names []string
	for _, t := range tools(version) {
		names = append(names, t.Name)
	}
	d.say(whoBackend, "%s is up (process %d), offering %s", version, p.cmd.Process.Pid, strings.Join(names, ", "))
	return nil
}

// redeploy shows one redeployment and reports whether it came out as it should.
func (d *demo) redeploy(ctx context.Context, title, version string, changes bool) (bool, error) {
	d.agents.takeLedger()
	recreated, err := d.sidecar.metric(ctx, "session_reinitializations_total", `result="ok"`)
	if err != nil {
		return false, err
	}
	held, err := d.sidecar.metric(ctx, "hold_duration_seconds_count")
	if err != nil {
		return false, err
	}

	d.chapter("redeployment: %s", title)
	d.say(whoBackend, "process %d is killed (SIGKILL)", d.backend.cmd.Process.Pid)
	d.backend.kill()
	if err := pause(ctx, away); err != nil {
		return false, err
	}
	if err := d.startBackend(ctx, version); err != nil {
		return false, err
	}
	up := time.Now()

	// Every conversation is to have exactly the new tools, in the sidecar's books and in the agent server.
	outdated, current := []string{"?"}, false
	wait := eventually(ctx, 15*time.Second, func() (bool, error) {
		ts, err := d.listTools(ctx)
		if err != nil {
			return false, nil //nolint:nilerr // it may still be starting
		}
		if outdated, err = d.agents.outdated(ts.Hash); err != nil {
			return false, err
		}
		current, err = d.allCurrent(ctx)
		d.mu.Lock()
		swapSeen := d.swap.After(up.Add(-away))
		d.mu.Unlock()
		return current && swapSeen && len(outdated) == 0, err
	})
	// What shouldn't come must have had the time to come.
	if err := pause(ctx, quiet); err != nil {
		return false, err
	}

	recreatedNow, err := d.sidecar.metric(ctx, "session_reinitializations_total", `result="ok"`)
	if err != nil {
		return false, err
	}
	heldNow, err := d.sidecar.metric(ctx, "hold_duration_seconds_count")
	if err != nil {
		return false, err
	}
	l := d.agents.takeLedger()
	want := 0
	if changes {
		want = d.cfg.Conversations
	}
	d.mu.Lock()
	swap, last := d.swap, d.lastRefresh
	d.mu.Unlock()

	fmt.Fprintln(d.out)
	d.result("without a backend", "%s", milliseconds(away))
	d.result("new process up → swap known", "%s", milliseconds(max(swap.Sub(up), 0)))
	if changes {
		d.result("new process up → last conversation refreshed", "%s", milliseconds(last.Sub(up)))
	}
	d.result("requests held", "%d", heldNow-held)
	d.result("sessions re-created", "%d", recreatedNow-recreated)
	d.result("conversations refreshed", "%d of %d (wanted: %d)", l.refreshes, d.cfg.Conversations, want)
	d.result("conversations with exactly the new tools", "%d of %d", d.cfg.Conversations-len(outdated), d.cfg.Conversations)
	d.result("calls by agents", "%d, the longest took %s", l.calls, milliseconds(l.longest))
	d.result("failed calls", "%d", len(l.failures))
	for _, f := range l.failures[:min(len(l.failures), 5)] {
		d.result("", "%s", f)
	}
	return wait == nil && len(l.failures) == 0 && l.calls > 0 && l.refreshes == want, nil
}

// see tells about an event of the sidecar.
func (d *demo) see(e admin.Event) {
	switch e.Type {
	case "state":
		switch e.State {
		case "away":
			d.sayAt(e.At, whoSidecar, "the backend is away: requests are held")
			d.wasAway = true
		case "ready":
			if d.wasAway {
				d.sayAt(e.At, whoSidecar, "the backend answers: held requests go on")
			}
			d.wasAway = false
		}
	case "swap":
		d.mu.Lock()
		d.swap = e.At
		d.mu.Unlock()
		d.sayAt(e.At, whoSidecar, "a new process is behind the address (cause: %s)", e.Cause)
	case "generation":
		d.sayAt(e.At, whoSidecar, "%s", generation(e))
	case "refresh":
		switch e.Result {
		case "started":
		case "success":
			d.mu.Lock()
			d.lastRefresh = e.At
			d.mu.Unlock()
			d.sayAt(e.At, whoRefresh, "conversation %s has generation %d (%s)", e.Conversation, e.Generation, e.How)
		default:
			d.sayAt(e.At, whoRefresh, "conversation %s: %s %s", e.Conversation, e.Result, e.Reason)
		}
	}
}

// generation describes a new generation.
func generation(e admin.Event) string {
	var parts []string
	for _, c := range []struct {
		verb  string
		names []string
	}{{"added", e.Added}, {"removed", e.Removed}, {"changed", e.Changed}} {
		if len(c.names) > 0 {
			parts = append(parts, c.verb+" "+strings.Join(c.names, ", "))
		}
	}
	if len(parts) == 0 {
		return fmt.Sprintf("generation %d of the tools is known", e.Generation)
	}
	if len(e.Removed) > 0 {
		// What a starting server has not registered yet must not count as removed.
		parts = append(parts, "(a list that lost tools has to stay so for 2 s)")
	}
	kind := "an additive"
	if e.Breaking {
		kind = "a breaking"
	}
	return fmt.Sprintf("generation %d of the tools, %s change: %s", e.Generation, kind, strings.Join(parts, "; "))
}

// settled reports whether the sidecar knows what the backend offers.
func (d *demo) settled(ctx context.Context) (bool, error) {
	servers, err := d.sidecar.client.Servers(ctx)
	if err != nil {
		return false, fmt.Errorf("asking the sidecar for its servers: %w", err)
	}
	return len(servers) == 1 && servers[0].State == "settled", nil
}

// allCurrent reports whether the sidecar has every conversation registered, with the newest tools.
func (d *demo) allCurrent(ctx context.Context) (bool, error) {
	page, err := d.sidecar.client.Conversations(ctx, conversation.Query{State: conversation.StateCurrent, Limit: 1000})
	if err != nil {
		return false, fmt.Errorf("asking the sidecar for its conversations: %w", err)
	}
	return len(page.Conversations) == d.cfg.Conversations, nil
}

// listTools asks the backend itself.
func (d *demo) listTools(ctx context.Context) (health.Toolset, error) {
	return health.List(ctx, health.ListOptions{URL: &url.URL{Scheme: "http", Host: d.address, Path: "/mcp"}})
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}

// stop ends whatever was started, clients first.
func (d *demo) stop() {
	if d.agents != nil {
		d.agents.close()
	}
	if d.endFeed != nil {
		d.endFeed()
	}
	d.feed.Wait()
	if d.sidecar != nil {
		d.sidecar.kill()
	}
	if d.backend != nil {
		d.backend.kill()
	}
}
