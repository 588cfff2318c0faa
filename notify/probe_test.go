package notify

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestProbe(t *testing.T) {
	t.Parallel()
	const (
		search = "GET /api/conversations/search"
		action = "GET /api/conversations/" + string(probedID) + "/refresh_mcp_tools"
	)
	closed := httptest.NewServer(nil)
	closed.Close()
	tests := map[string]struct {
		url     string
		answers map[string]func(http.ResponseWriter, *http.Request)
		want    ProbeResult
		reason  Reason
	}{
		"everything": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"GET /server_info": status(200, `{"uptime":12.5,"version":"1.58.2"}`),
				search:             status(200, `{"items":[]}`),
				action:             status(405, `{"detail":"Method Not Allowed"}`),
			},
			want: ProbeResult{Reachable: true, Version: "1.58.2", KeyAccepted: true, ActionPresent: true},
		},
		"no action": {
			answers: map[string]func(http.ResponseWriter, *http.Request){search: status(200, `{"items":[]}`)},
			want:    ProbeResult{Reachable: true, KeyAccepted: true},
		},
		"wrong key": {
			answers: map[string]func(http.ResponseWriter, *http.Request){search: status(401, `{"detail":"Unauthorized"}`)},
			want:    ProbeResult{Reachable: true}, reason: ReasonAuth,
		},
		"ingress": {
			answers: map[string]func(http.ResponseWriter, *http.Request){
				"GET /server_info": status(404, "<html>"), search: status(404, "<html>"),
			},
			reason: ReasonIngress,
		},
		"away": {url: closed.URL, reason: ReasonNetwork},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAgentServer(t)
			for line, answer := range tt.answers {
				f.on(line, answer)
			}
			if tt.url == "" {
				tt.url = f.URL
			}
			s := DefaultAgentServer("default", mustURL(t, tt.url))
			s.APIKey = func() (string, error) { return "key", nil }
			got, err := Probe(t.Context(), s)
			if ReasonOf(err) != tt.reason {
				t.Errorf("reason %q, want %q: %v", ReasonOf(err), tt.reason, err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}
