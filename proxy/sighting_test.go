package proxy

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// TestSightings shows what requests tell of conversations and agent servers, and
// what of that the backend sees.
func TestSightings(t *testing.T) {
	const key = "canary-key"

	tests := map[string]struct {
		path    string
		header  []string
		want    []conversation.Sighting
		backend string // the key that it sees
	}{
		"nothing": {path: "/mcp", header: []string{"X-Session-API-Key", key}, backend: key},
		"URL": {
			path: "/c/x/mcp", header: []string{"X-Session-API-Key", key},
			want: []conversation.Sighting{{ID: "x", Server: "default", Source: conversation.SourceURL}},
		},
		"URL and agent server": {
			path: "/c/x/mcp", header: []string{"X-Session-API-Key", key, "X-Sidecar-Agent-Server", "https://a.example.com"},
			want: []conversation.Sighting{{ID: "x", AgentServer: "https://a.example.com", AgentKey: key, Server: "default", Source: conversation.SourceURL}},
		},
		"header and agent server": {
			path: "/mcp", header: []string{"X-OpenHands-ServerConversation-ID", "x", "X-Sidecar-Agent-Server", "main"},
			want: []conversation.Sighting{{ID: "x", AgentServer: "main", Server: "default", Source: conversation.SourceHeader}},
		},
		"agent server alone": {
			path: "/mcp", header: []string{"X-Sidecar-Agent-Server", "main", "X-Session-API-Key", key},
			want: []conversation.Sighting{{AgentServer: "main", AgentKey: key, Server: "default", Source: conversation.SourceHeader}},
		},
		"bad id": {path: "/mcp", header: []string{"X-OpenHands-ServerConversation-ID", "../x"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.backend.start(process{handler: &stub{}, tools: tools("a")})
			r.settled()

			if got := r.do(t.Context(), http.MethodPost, tt.path, "", initBody, tt.header...); got.status != http.StatusOK {
				t.Fatalf("status %d: %s", got.status, got.body)
			}

			seen, _, _ := r.convs.all()
			if diff := cmp.Diff(tt.want, seen); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}

			for _, c := range r.backend.calls(func(c call) bool { return c.method == methodInitialize }) {
				if got := c.header.Get("X-Session-API-Key"); got != tt.backend {
					t.Errorf("the backend sees the key %q", got)
				}

				for _, h := range []string{"X-Sidecar-Agent-Server", "X-OpenHands-ServerConversation-ID"} {
					if c.header.Get(h) != "" {
						t.Errorf("the backend sees %s", h)
					}
				}
			}
		})
	}
}
