package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// agentServer is an agent server that acknowledges every refresh.
type agentServer struct {
	mu        sync.Mutex
	key       string
	list      string // of its conversations
	refreshes int
}

func (s *agentServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	switch {
	case r.Header.Get("X-Session-API-Key") != s.key:
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, `{"detail":"Unauthorized"}`)
	case strings.HasSuffix(r.URL.Path, "/refresh_mcp_tools") && r.Method != http.MethodPost:
		w.WriteHeader(http.StatusMethodNotAllowed)
	case strings.HasSuffix(r.URL.Path, "/search"):
		_, _ = io.WriteString(w, `{"items":[`+s.list+`],"next_page_id":null}`)
	case strings.HasSuffix(r.URL.Path, "/reconnect_mcp"):
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"detail":"Not Found"}`)
	default:
		if strings.HasSuffix(r.URL.Path, "/refresh_mcp_tools") {
			s.refreshes++
		}
		_, _ = io.WriteString(w, `{"success":true}`)
	}
}

func (s *agentServer) set(list string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.list = list
}

func (s *agentServer) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refreshes
}

// TestRefresh follows a swap to the conversation: the agent server is called with
// the key of the file, and the registry, the API and the feed tell of it. No
// secret shows up anywhere.
func TestRefresh(t *testing.T) {
	for _, on := range []string{"schema", "swap"} {
		t.Run(on, func(t *testing.T) {
			const secret = "canary-key"
			as := &agentServer{key: secret}
			srv := httptest.NewServer(as)
			defer srv.Close()
			keyFile := t.TempDir() + "/key"
			writeFile(t, keyFile, secret+"\n")
			b := startBackend(t, "add")
			cfg := testConfig(t, b.url(), func(c *config.Config) {
				c.AgentServer, c.AgentAPIKeyFile, c.RefreshOn = []string{srv.URL}, keyFile, on
			})
			l := &logs{}
			a := newApp(cfg, appOptions{Logger: l.logger()})
			if err := a.start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { stopApp(t, a) })
			c := adminClient(t, a)
			eventually(t, "generation 1", func() bool { return theServer(t, c).Generation == 1 })
			if _, err := c.Register(t.Context(), "conv", admin.Registration{}); err != nil {
				t.Fatal(err)
			}
			applied := func(generation uint64) func() bool {
				return func() bool {
					v, err := c.Conversation(t.Context(), "conv")
					return err == nil && v.State == "current" && len(v.Servers) == 1 && v.Servers[0].Applied == generation && v.Servers[0].How == "acknowledged"
				}
			}
			eventually(t, "generation 1 applied", applied(1))
			feed := readFeed(t, a)
			calls := as.count()

			b.stop()
			b.start("add") // the same tools
			eventually(t, "the swap", func() bool { return theServer(t, c).Swaps == 1 && theServer(t, c).State == "settled" })
			if on == "swap" {
				eventually(t, "generation 2 applied", applied(2))
				if as.count() != calls+1 {
					t.Errorf("%d refreshes for one swap", as.count()-calls)
				}
				eventually(t, "a refresh in the feed", func() bool { return strings.Contains(feed.String(), `"result":"success"`) })
			} else {
				b.stop()
				b.start("add", "new")
				eventually(t, "generation 2 applied", applied(2))
				if as.count() != calls+1 {
					t.Errorf("%d refreshes for one change", as.count()-calls)
				}
			}
			_, metrics := get(t, "http://"+a.addr("ops")+"/metrics")
			for name, text := range map[string]string{"log": l.String(), "metrics": metrics, "feed": feed.String()} {
				if strings.Contains(text, "canary") {
					t.Errorf("a secret is in the %s", name)
				}
			}
		})
	}
}

func TestCheckLive(t *testing.T) {
	as := &agentServer{key: "right"}
	srv := httptest.NewServer(as)
	defer srv.Close()
	b := startBackend(t, "add")
	key := t.TempDir() + "/key"
	args := []string{"check", "--live", "--upstream", b.url(), "--agent-server", srv.URL, "--agent-api-key-file", key}

	writeFile(t, key, "right")
	r := runCLI(t, nil, args...)
	want := `ok: 1 server, 1 agent server
KIND          NAME     RESULT  FOUND
server        default  ok      answers, 1 tool
agent server  default  ok      reachable, key accepted, refresh action present, no conversations yet
`
	if r != (result{exitOK, want, ""}) {
		t.Errorf("all well: %+v", r)
	}
	as.set(`{"id":"x","agent":{"mcp_config":{"a":{"url":"http://localhost:8080/mcp?key=canary"}}}}`)
	if r := runCLI(t, nil, args...); r.code != exitOK || !strings.Contains(r.stdout, "present, 1 of 1 conversation use this sidecar\n") {
		t.Errorf("a conversation uses it: %+v", r)
	}
	r = runCLI(t, nil, append(args, "--public-url", "https://tools.example.com/x", "--json")...)
	if r.code != exitUsage || !strings.Contains(r.stdout, "none of 1 conversation uses this sidecar at https://tools.example.com/x (see --public-url)") ||
		!strings.Contains(r.stdout, "they use http://localhost:8080/mcp") || !strings.Contains(r.stdout, `"using": 0`) || strings.Contains(r.stdout, "canary") {
		t.Errorf("no conversation uses it: %+v", r)
	}
	writeFile(t, key, "canary")
	b.stop()
	r = runCLI(t, nil, args...)
	if r.code != exitUsage || !strings.Contains(r.stdout, "server        default  FAILED  ") || !strings.Contains(r.stdout, "is the server running") ||
		!strings.Contains(r.stdout, "default  FAILED  reachable, but doesn't accept the key") || strings.Contains(r.stdout, "canary") {
		t.Errorf("nothing well: %+v", r)
	}
	srv.Close()
	if r = runCLI(t, nil, append(args, "--json")...); r.code != exitUsage || !strings.Contains(r.stdout, "not reachable") {
		t.Errorf("as JSON: %+v", r)
	}
	if as.count() != 0 {
		t.Error("a check refreshed a conversation")
	}
}
