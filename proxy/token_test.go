package proxy

import (
	"net/http"
	"strings"
	"testing"
)

// TestToken: with a token, only those that have it come in, and it stays here.
func TestToken(t *testing.T) {
	wanted := true
	r := newRig(t, func(c *Config, d *Deps, _ *rig) {
		c.AllowedOrigins = []string{"https://app.example.com"}
		d.CheckToken = func(token string) (bool, bool) { return wanted, token == "right" }
	})
	r.backend.start(process{handler: &stub{}})

	with := []string{"Authorization", "Bearer right"}
	id := r.initialize(with...)

	for _, c := range []struct {
		name, method, path, session string
		header                      []string
		want                        int
	}{
		{"right", "POST", "/mcp", id, with, 200},
		{"right, scheme in small letters", "POST", "/mcp", id, []string{"Authorization", "bearer  right "}, 200},
		{"right, for a conversation", "POST", "/c/one/mcp", "", with, 404}, // the backend wants a session
		{"none", "POST", "/mcp", id, nil, 401},
		{"none, for a conversation", "POST", "/c/one/mcp", "", nil, 401},
		{"wrong", "POST", "/mcp", id, []string{"Authorization", "Bearer wrong"}, 401},
		{"empty", "POST", "/mcp", id, []string{"Authorization", "Bearer "}, 401},
		{"another scheme", "POST", "/mcp", id, []string{"Authorization", "Basic right"}, 401},
		{"two", "POST", "/mcp", id, []string{"Authorization", "Bearer right", "Authorization", "Bearer other"}, 401},
		{"a stream without", "GET", "/mcp", id, nil, 401},
		{"an end without", "DELETE", "/mcp", id, nil, 401},
		{"an unknown path without", "POST", "/nothing", "", nil, 401},
		{"metadata", "GET", "/.well-known/oauth-protected-resource", "", nil, 405}, // the backend has none
		{"metadata that is written", "POST", "/.well-known/oauth-protected-resource", "", nil, 401},
		{"no metadata", "GET", "/.well-known/other", "", nil, 401},
		{"token endpoint", "POST", "/token", "", nil, 401},
		{"foreign origin", "POST", "/mcp", id, append([]string{"Origin", "https://evil.example"}, with...), 403},
		{"preflight", "OPTIONS", "/mcp", "", []string{"Origin", "https://app.example.com", "Access-Control-Request-Method", "POST"}, 204},
	} {
		g := r.do(t.Context(), c.method, c.path, c.session, listBody(1), c.header...)
		if g.status != c.want {
			t.Errorf("%s: status %d: %s", c.name, g.status, g.body)
		}

		challenge := g.header.Get("Www-Authenticate")
		if (g.status == 401) != strings.HasPrefix(challenge, `Bearer realm="mcp-sidecar"`) {
			t.Errorf("%s: challenge %q", c.name, challenge)
		}

		// RFC 6750, section 3.1: no error code for a client that didn't try.
		if (c.name == "wrong" || c.name == "two") != strings.Contains(challenge, "invalid_token") {
			t.Errorf("%s: challenge %q", c.name, challenge)
		}
	}

	for _, seen := range r.backend.calls(func(call) bool { return true }) {
		if seen.header.Get("Authorization") != "" {
			t.Errorf("the backend sees the token with %s", seen.method)
		}
	}

	// A page that may talk to the sidecar can read why it can't.
	g := r.do(t.Context(), http.MethodPost, "/mcp", id, listBody(1), "Origin", "https://app.example.com")
	if g.status != 401 || g.header.Get("Access-Control-Allow-Origin") == "" {
		t.Errorf("a page gets %d %v", g.status, g.header)
	}

	// Without one wanted, the header is the backend's.
	wanted = false
	before := len(r.backend.calls(func(c call) bool { return c.header.Get("Authorization") != "" }))
	r.do(t.Context(), http.MethodPost, "/mcp", "", listBody(1), with...)
	if after := len(r.backend.calls(func(c call) bool { return c.header.Get("Authorization") == "Bearer right" })); after != before+1 {
		t.Error("the backend doesn't get its header")
	}
}
