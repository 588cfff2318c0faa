//go:build openhands && unix

package openhands

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/e2e/proc"
)

// TestSwap replaces backends under five conversations on two agent servers.
func TestSwap(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, row := range []row{
		{kind: "sdk1", servers: 1, action: true},
		{kind: "fastmcp4", servers: 1, action: true, stateless: true, way: headers},
		{kind: "fastmcp3", servers: 2, action: true, way: webhooks},
		{kind: "sdk1", servers: 2, action: true, stateless: true},
		{kind: "fastmcp4", servers: 1},
		{kind: "fastmcp3", servers: 1, stateless: true},
		{kind: "sdk1", servers: 2},
		{kind: "fastmcp3", servers: 2, stateless: true},
	} {
		t.Run(row.String(), func(t *testing.T) {
			t.Parallel()
			row.number = i
			row.test(t, w)
		})
	}
}

// row is one combination.
type row struct {
	number    int
	kind      string
	servers   int // MCP servers of each conversation
	action    bool
	stateless bool
	way       way
}

func (r row) String() string {
	text := fmt.Sprintf("%s/%d_servers/stateful", r.kind, r.servers)
	if r.stateless {
		text = strings.Replace(text, "stateful", "stateless", 1)
	}
	if !r.action {
		text += "/without_action"
	}
	return text
}

// follows tells whether conversations get new tools. With several servers and without the action they can't: the agent
// server doesn't pass on that the tools have changed.
func (r row) follows() bool { return r.action || r.servers == 1 }

// offered returns what the backends offer now, under the names that it has in conversations.
func (r row) offered(backends map[string]*backend) offer {
	all := offer{}
	for name, b := range backends {
		for tool, parameters := range toolsOf(b.version) {
			all[toolName(backends, name, tool)] = parameters
		}
	}
	return all
}

// converseDirectly begins a conversation without the sidecar.
func (r row) converseDirectly(t *testing.T, m *model, agent *agentServer, backends map[string]*backend) *talker {
	t.Helper()
	servers := map[string]mcpServer{}
	for name, b := range backends {
		servers[name] = mcpServer{Transport: "http", URL: "http://" + b.addr + "/mcp"}
	}
	c := agent.converse(t, m, fmt.Sprintf("d15ea5e0-0000-4000-8000-%012d", r.number), servers)
	if diff := c.complete().difference(r.offered(backends)); diff != "" {
		t.Fatalf("without the sidecar, at the start: %s", diff)
	}
	return c
}

// testTrap shows what the sidecar is for in conversations with several servers, where the agent server puts a router of its
// own before them: without the sidecar, the refresh of a conversation whose session was lost succeeds, and takes all tools
// of that server away.
func (r row) testTrap(direct *talker, backends map[string]*backend) {
	direct.t.Helper()
	direct.agent.must(direct.t, http.MethodPost, direct.path("/refresh_mcp_tools"), nil, nil)
	want := r.offered(backends)
	if !r.stateless { // else there is no session to lose
		maps.DeleteFunc(want, func(name string, _ []string) bool { return strings.HasPrefix(name, "tools_") })
	}
	if diff := direct.complete().difference(want); diff != "" {
		direct.t.Errorf("without the sidecar: %s", diff)
	}
}

// busy is how many of the conversations use a tool all the time. The others are idle while backends are replaced.
const busy = 2

func (r row) test(t *testing.T, w *world) {
	t.Helper()
	backends := map[string]*backend{}
	for _, name := range []string{"tools", "more"}[:r.servers] {
		backends[name] = newBackend(t, w.kinds[r.kind], r.stateless)
		backends[name].start("v1")
	}
	agents, at := w.with, reserve(t)
	if !r.action {
		agents = w.without
	}
	if r.way == webhooks {
		at = w.hooked
	}
	s := startSidecar(t, at, backends, r.way.lines(t, agents, at)...)

	var talkers []*talker
	for i := range 5 {
		id, named := fmt.Sprintf("c0ffee00-0000-4000-8000-%06d%06d", r.number, i), ""
		if i%2 == 1 {
			named = id // in the URL
		}
		servers := map[string]mcpServer{}
		for name := range backends {
			servers[name] = mcpServer{Transport: "http", URL: s.urlOf(name, named), Headers: r.way.headers()}
		}
		talkers = append(talkers, agents[i%len(agents)].converse(t, w.model, id, servers))
	}
	for _, c := range talkers {
		if diff := c.complete().difference(r.offered(backends)); diff != "" {
			t.Fatalf("at the start: %s", diff)
		}
		c.use(special(backends, "tools"))
	}
	known := []string{"current"}
	if !r.action { // one that began while the tools had only just settled may have older ones, as far as the sidecar knows
		known = append(known, "unsupported")
	}
	s.waitStates(talkers, known...)
	var direct *talker
	if r.servers == 2 && r.action {
		direct = r.converseDirectly(t, w.model, agents[0], backends)
	}

	// The first swap is of the only server, or of the first; the second is of the last, back and forth.
	has := r.offered(backends)
	versions := map[string]uint64{"tools": 1, "more": 1}
	for i, name := range []string{"tools", "more"} {
		if r.servers == 1 {
			name = "tools"
		}
		version := map[string]string{"v1": "v2", "v2": "v1"}[backends[name].version]
		versions[name]++
		has = r.swap(t, s, talkers, backends, has, func() {
			backends[name].replace(version, i == 0)
			s.waitGeneration(name, versions[name])
		})
		if direct != nil && i == 0 {
			r.testTrap(direct, backends)
		}
		for _, c := range talkers {
			if r.follows() {
				c.use(special(backends, name))
			}
		}
	}
	calls := 0
	for _, c := range talkers {
		done, failures := c.model.count()
		if len(failures) > 0 || done == 0 {
			t.Errorf("%d calls of conversation %s succeeded, and these failed: %q", done, c.id, failures)
		}
		calls += done
	}
	t.Logf("%d calls; refreshes: %v; observed: %v, acknowledged: %v", calls, s.metric("refreshes_total", ""),
		s.metric("applied_total", `how="observed"`), s.metric("applied_total", `how="acknowledged"`))
}

// swap lets some conversations use a tool while a backend is replaced, and looks at what the model is offered after. It is
// told what was offered before, and returns what is now.
func (r row) swap(t *testing.T, s *sidecar, talkers []*talker, backends map[string]*backend, has offer, replace func()) offer {
	t.Helper()
	before := map[string][]string{}
	for i, c := range talkers {
		before[c.id] = c.history()
		if i < busy {
			c.model.plan(reading(toolName(backends, "tools", "balance")), 1<<30)
			c.say("use the tool again and again")
		}
	}
	used := func() {
		for _, c := range talkers[:busy] {
			first, _ := c.model.count()
			proc.Within(t, patience, "calls of "+c.id, func() bool {
				done, failures := c.model.count()
				if len(failures) > 0 {
					t.Fatalf("calls of conversation %s failed: %q", c.id, failures)
				}
				return done >= first+2
			})
		}
	}
	used()
	listed := s.metric("proxy_requests_total", `method="tools/list"`)
	replace()
	switch {
	case r.action:
		s.waitStates(talkers, "current")
	case r.follows():
		// Those whose requests tell their id are seen to list the tools.
		s.waitStates(talkers, "current", "unsupported")
		proc.Within(t, patience, "conversations to list the tools", func() bool {
			return s.metric("proxy_requests_total", `method="tools/list"`) >= listed+float64(len(talkers))
		})
	default:
		s.waitStates(talkers, "unsupported")
	}
	want := has
	if r.follows() {
		want = r.offered(backends)
	}
	used()
	for i, c := range talkers {
		if after := c.history(); i >= busy && !slices.Equal(after, before[c.id]) {
			t.Errorf("the history of idle conversation %s was\n%s\nand is\n%s", c.id, before[c.id], after)
		}
		c.model.plan(call{}, 0)
		if i < busy {
			c.waitFinished()
			offered := c.model.requests(0)
			if diff := offered[len(offered)-1].difference(want); diff != "" {
				t.Errorf("conversation %s, in the run during which it happened: %s", c.id, diff)
			}
		}
		if diff := c.complete().difference(want); diff != "" {
			t.Errorf("conversation %s: %s", c.id, diff)
		}
		if after := c.history(); len(after) < len(before[c.id]) || !slices.Equal(after[:len(before[c.id])], before[c.id]) {
			t.Errorf("the history of conversation %s was\n%s\nand begins\n%s", c.id, before[c.id], after)
		}
	}
	return want
}
