package notify

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

// startAgentServer starts the embedded agent server with one conversation whose
// only MCP server is broken.
func startAgentServer(t *testing.T, action agentserver.Action) (url string) {
	t.Helper()
	mcp := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusServiceUnavailable)
	}))
	t.Cleanup(mcp.Close)
	cfg := agentserver.DefaultConfig()
	cfg.Action = action
	s, err := agentserver.New(cfg, agentserver.Deps{Keys: func() ([]string, error) { return []string{"key"}, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Create(t.Context(), agentserver.CreateRequest{
		ID: testID, Servers: []agentserver.MCPServer{{Name: "default", URL: mcp.URL}},
	}); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(s)
	t.Cleanup(func() {
		srv.Close()
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})

	return srv.URL
}

func TestEmbeddedAgentServer(t *testing.T) {
	const unknown conversation.ID = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
	tests := map[string]struct {
		action agentserver.Action
		key    string
		id     conversation.ID
		want   Reason
		probe  ProbeResult
	}{
		"dead MCP server": {
			action: agentserver.ActionRefresh, key: "key", id: testID, want: ReasonServerError,
			probe: ProbeResult{Reachable: true, KeyAccepted: true, ActionPresent: true},
		},
		"unknown conversation": {
			action: agentserver.ActionRefresh, key: "key", id: unknown, want: ReasonGone,
			probe: ProbeResult{Reachable: true, KeyAccepted: true, ActionPresent: true},
		},
		"wrong key": {
			action: agentserver.ActionRefresh, key: "old", id: testID, want: ReasonAuth,
			probe: ProbeResult{Reachable: true},
		},
		"reconnect only, dead MCP server": {
			action: agentserver.ActionReconnect, key: "key", id: testID, want: ReasonNotConnected,
			probe: ProbeResult{Reachable: true, KeyAccepted: true, ReconnectPresent: true},
		},
		"no action": {
			action: agentserver.ActionNone, key: "key", id: testID, want: ReasonUnsupported,
			probe: ProbeResult{Reachable: true, KeyAccepted: true},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			url := startAgentServer(t, tt.action)
			key := withKey(func() (string, error) { return tt.key, nil })
			err := newTestClient(t, url, key).refresh(t.Context(), call{id: tt.id, servers: []string{"default"}})
			if got := ReasonOf(err); got != tt.want {
				t.Errorf("got %q, want %q (%v)", got, tt.want, err)
			}
			s := DefaultAgentServer("default", mustURL(t, url))
			key(&s)
			got, _ := Probe(t.Context(), s)
			got.Version = ""
			if diff := cmp.Diff(tt.probe, got); diff != "" {
				t.Errorf("probe (-want +got):\n%s", diff)
			}
		})
	}
}
