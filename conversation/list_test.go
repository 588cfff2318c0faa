package conversation_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func (h *harness) listAll(q conversation.Query, between func()) (ids []conversation.ID, pages int) {
	h.t.Helper()
	for {
		p, err := h.List(q)
		if err != nil {
			h.t.Fatal(err)
		}
		pages++
		for _, v := range p.Items {
			ids = append(ids, v.ID)
		}
		if p.Next == "" {
			return ids, pages
		}
		q.Cursor = p.Next
		if between != nil {
			between()
		}
	}
}

func TestList(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		if p, err := h.List(conversation.Query{}); err != nil || p.Items == nil || len(p.Items) != 0 || p.Next != "" {
			t.Errorf("List of none: %+v, %v", p, err)
		}
		h.settle("tools", "A")
		h.settle("other", "O")
		var want []conversation.ID
		for i := range 25 {
			id := conversation.ID(fmt.Sprintf("c%02d", (i*7)%25))
			want = append(want, id)
			reg := conversation.Registration{ID: id, Servers: []string{"tools"}}
			if i%5 == 0 {
				reg.Servers = []string{"other"}
			}
			if i%3 == 0 {
				reg.AgentServer = "second"
			}
			h.register(reg)
			if i%2 == 0 {
				h.refreshed(h.view(id), conversation.HowObserved)
			}
		}
		slices.Sort(want)
		for _, limit := range []int{0, 1, 4, 24, 25, 26} {
			got, pages := h.listAll(conversation.Query{Limit: limit}, nil)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("limit %d (-want +got):\n%s", limit, diff)
			}
			if limit == 25 && pages != 1 {
				t.Errorf("%d pages, where all fit into one", pages)
			}
		}
		for name, test := range map[string]struct {
			q    conversation.Query
			want int
		}{
			"state":        {conversation.Query{State: conversation.StateCurrent}, 13},
			"server":       {conversation.Query{Server: "other"}, 5},
			"agent server": {conversation.Query{AgentServer: "second"}, 9},
			"source":       {conversation.Query{Source: conversation.SourceConfig}, 0},
			"all of them":  {conversation.Query{State: conversation.StateStale, Server: "tools", AgentServer: "default"}, 7},
			"none":         {conversation.Query{Server: "x"}, 0},
		} {
			test.q.Limit = 3
			if got, _ := h.listAll(test.q, nil); len(got) != test.want || !slices.IsSorted(got) {
				t.Errorf("%s: %d, want %d: %q", name, len(got), test.want, got)
			}
		}

		// Pages don't repeat or leave out anything that stays, whatever comes and goes.
		n := 0
		got, _ := h.listAll(conversation.Query{Limit: 2}, func() {
			h.register(conversation.Registration{ID: conversation.ID(fmt.Sprintf("a%02d", n))})
			if n < 4 {
				if err := h.Remove(t.Context(), conversation.ID(fmt.Sprintf("c%02d", 2*n+1))); err != nil { // also the cursor itself
					t.Error(err)
				}
			}
			n++
		})
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("with changes in between (-want +got):\n%s", diff)
		}
	})
}

func TestCounts(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		reg := prometheus.NewPedanticRegistry()
		cfg := testConfig()
		delete(cfg.AgentServers, "second")
		cfg.AgentServers["sandboxes"] = conversation.AgentServerSettings{IdleAfter: idleAfter, Pattern: true}
		r, err := conversation.NewRegistry(cfg, conversation.RegistryDeps{
			Store: h.store, Metrics: conversation.NewMetrics(reg),
		})
		if err != nil {
			t.Fatal(err)
		}
		h = &harness{Registry: r, t: t, store: h.store}
		h.settle("tools", "A")
		settled := time.Now()
		time.Sleep(time.Second)
		h.register(conversation.Registration{ID: "stale"})
		stale := time.Now()
		time.Sleep(time.Second)
		h.register(conversation.Registration{ID: "failed"})
		h.failed(h.view("failed"), conversation.ConditionFailed, time.Hour)
		h.register(conversation.Registration{ID: "current", AgentServer: "sandboxes", AgentURL: "https://a.example.com"})
		h.refreshed(h.view("current"), conversation.HowObserved)
		h.register(conversation.Registration{ID: "dormant", AgentServer: "sandboxes", AgentURL: "https://b.example.com", LastActive: settled.Add(-time.Hour)})

		want := map[string]map[conversation.State]int{}
		for _, agent := range []string{"default", "sandboxes"} {
			want[agent] = map[conversation.State]int{}
			for _, s := range conversation.States() {
				want[agent][s] = 0
			}
		}
		want["default"][conversation.StateStale] = 1
		want["default"][conversation.StateFailed] = 1
		want["sandboxes"][conversation.StateCurrent] = 1
		want["sandboxes"][conversation.StateDormant] = 1
		if diff := cmp.Diff(want, h.Counts()); diff != "" {
			t.Errorf("Counts (-want +got):\n%s", diff)
		}
		if got := h.OldestStale(); !got.Equal(stale) {
			t.Errorf("OldestStale = %v, want %v", got, stale)
		}

		err = testutil.GatherAndCompare(reg, strings.NewReader(`
# HELP mcp_sidecar_conversations Registered conversations, by state.
# TYPE mcp_sidecar_conversations gauge
mcp_sidecar_conversations{agent_server="default",state="current"} 0
mcp_sidecar_conversations{agent_server="default",state="dormant"} 0
mcp_sidecar_conversations{agent_server="default",state="failed"} 1
mcp_sidecar_conversations{agent_server="default",state="parked"} 0
mcp_sidecar_conversations{agent_server="default",state="stale"} 1
mcp_sidecar_conversations{agent_server="default",state="unsupported"} 0
mcp_sidecar_conversations{agent_server="sandboxes",state="current"} 1
mcp_sidecar_conversations{agent_server="sandboxes",state="dormant"} 1
mcp_sidecar_conversations{agent_server="sandboxes",state="failed"} 0
mcp_sidecar_conversations{agent_server="sandboxes",state="parked"} 0
mcp_sidecar_conversations{agent_server="sandboxes",state="stale"} 0
mcp_sidecar_conversations{agent_server="sandboxes",state="unsupported"} 0
# HELP mcp_sidecar_conversations_oldest_stale_timestamp_seconds Since when the conversation that is stale or failed for longest is so, 0 when none is.
# TYPE mcp_sidecar_conversations_oldest_stale_timestamp_seconds gauge
mcp_sidecar_conversations_oldest_stale_timestamp_seconds{agent_server="default"} 9.46684801e+08
mcp_sidecar_conversations_oldest_stale_timestamp_seconds{agent_server="sandboxes"} 0
# HELP mcp_sidecar_conversation_registrations_total Registrations of conversations and their ends, by result.
# TYPE mcp_sidecar_conversation_registrations_total counter
mcp_sidecar_conversation_registrations_total{result="created"} 4
mcp_sidecar_conversation_registrations_total{result="expired"} 0
mcp_sidecar_conversation_registrations_total{result="rejected"} 0
mcp_sidecar_conversation_registrations_total{result="removed"} 0
mcp_sidecar_conversation_registrations_total{result="renewed"} 0
`), "mcp_sidecar_conversations", "mcp_sidecar_conversations_oldest_stale_timestamp_seconds", "mcp_sidecar_conversation_registrations_total")
		if err != nil {
			t.Error(err)
		}
	})
}
