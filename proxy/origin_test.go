package proxy

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

func TestGuard(t *testing.T) {
	t.Parallel()

	loopback := GuardConfig{Loopback: true, AllowedOrigins: []string{"https://App.example:443", "vscode-webview://abc", "http://localhost:5173"}}
	public := GuardConfig{PublicURLs: []*url.URL{mustURL(t, "https://mcp.example"), mustURL(t, "http://mcp.internal:8080/mcp")}}
	open := GuardConfig{}
	none := "(none)"

	tests := []struct {
		name, host, origin string
		cfg                GuardConfig
		want               int
	}{
		{"localhost", "localhost", none, loopback, 200},
		{"localhost with a port", "localhost:8080", none, loopback, 200},
		{"odd case and a dot", "LocalHost.:8080", none, loopback, 200},
		{"IPv4", "127.0.0.1", none, loopback, 200},
		{"IPv4 with a port", "127.0.0.1:8080", none, loopback, 200},
		{"another loopback address", "127.0.0.2:1", none, loopback, 200},
		{"IPv6", "[::1]", none, loopback, 200},
		{"IPv6 with a port", "[::1]:8080", none, loopback, 200},
		{"mapped IPv4", "[::ffff:127.0.0.1]:8080", none, loopback, 200},
		{"foreign host", "evil.example", none, loopback, 403},
		{"foreign host with a port", "evil.example:8080", none, loopback, 403},
		{"begins like localhost", "localhost.evil.example", none, loopback, 403},
		{"begins like an address", "127.0.0.1.evil.example", none, loopback, 403},
		{"every address", "0.0.0.0:8080", none, loopback, 403},
		{"private address", "192.168.1.2:8080", none, loopback, 403},
		{"no host", "", none, loopback, 403},

		{"allowed origin", "localhost:8080", "https://app.example", loopback, 200},
		{"allowed origin with its port", "localhost:8080", "https://app.example:443", loopback, 200},
		{"allowed origin in odd case", "localhost:8080", "HTTPS://APP.EXAMPLE", loopback, 200},
		{"allowed origin of another scheme", "localhost:8080", "vscode-webview://abc", loopback, 200},
		{"allowed local origin", "localhost:8080", "http://localhost:5173", loopback, 200},
		{"own origin", "localhost:8080", "http://localhost:8080", loopback, 200},
		{"own origin by another name", "127.0.0.1:8080", "http://localhost:8080", loopback, 200},
		{"own origin on port 80", "localhost:80", "http://localhost", loopback, 200},
		{"foreign origin", "localhost:8080", "https://evil.example", loopback, 403},
		{"foreign host and origin that agree", "evil.example", "http://evil.example", loopback, 403},
		{"another local origin", "localhost:8080", "http://localhost:3000", loopback, 403},
		{"less secure", "localhost:8080", "http://app.example", loopback, 403},
		{"other port", "localhost:8080", "https://app.example:8443", loopback, 403},
		{"longer", "localhost:8080", "https://app.example.evil.example", loopback, 403},
		{"user", "localhost:8080", "https://app.example@evil.example", loopback, 403},
		{"path", "localhost:8080", "https://app.example/x", loopback, 403},
		{"null", "localhost:8080", "null", loopback, 403},
		{"empty", "localhost:8080", "", loopback, 403},
		{"several in one", "localhost:8080", "https://app.example https://evil.example", loopback, 403},
		{"star", "localhost:8080", "*", loopback, 403},

		{"public host", "mcp.example", none, public, 200},
		{"second public host", "MCP.internal:8080", none, public, 200},
		{"loopback on a public listener", "localhost:8080", none, public, 200},
		{"foreign host on a public listener", "evil.example", none, public, 403},
		{"public origin", "mcp.example", "https://mcp.example", public, 200},
		{"public origin, less secure", "mcp.example", "http://mcp.example", public, 403},
		{"foreign origin on a public listener", "mcp.example", "https://evil.example", public, 403},

		{"any host where nothing is known", "pod-7.example:8080", none, open, 200},
		{"foreign origin where nothing is known", "evil.example", "http://evil.example", open, 403},
		{"own loopback origin where nothing is known", "localhost:8080", "http://localhost:8080", open, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			g, err := NewGuard(tt.cfg)
			if err != nil {
				t.Fatal(err)
			}

			reached := false
			h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true }))

			for _, method := range []string{http.MethodPost, http.MethodGet, http.MethodDelete, http.MethodOptions} {
				reached = false
				r := httptest.NewRequestWithContext(t.Context(), method, "/mcp", http.NoBody)
				r.Host = tt.host

				if tt.origin != none {
					r.Header.Set("Origin", tt.origin)
				}

				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)

				if w.Code != tt.want || reached != (tt.want == 200) {
					t.Errorf("%s: status %d, reached %v, want %d", method, w.Code, reached, tt.want)
				}

				cors := w.Header().Get("Access-Control-Allow-Origin")
				if want := tt.want == 200 && tt.origin != none; (cors == tt.origin) != want && (cors != "" || want) {
					t.Errorf("%s: allows %q", method, cors)
				}
			}
		})
	}
}

func TestGuardTwoOrigins(t *testing.T) {
	t.Parallel()

	g, err := NewGuard(GuardConfig{AllowedOrigins: []string{"https://app.example"}})
	if err != nil {
		t.Fatal(err)
	}

	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/mcp", http.NoBody)
	r.Header["Origin"] = []string{"https://app.example", "https://evil.example"}

	if err := g.check(r); err == nil {
		t.Error("two origins pass")
	}
}

func TestGuardPreflight(t *testing.T) {
	t.Parallel()

	g, err := NewGuard(GuardConfig{Loopback: true, AllowedOrigins: []string{"https://app.example"}})
	if err != nil {
		t.Fatal(err)
	}

	h := g.Handler(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the preflight went through") }))

	for origin, want := range map[string]int{"https://app.example": 204, "https://evil.example": 403} {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodOptions, "http://localhost:8080/mcp", http.NoBody)
		r.Header.Set("Origin", origin)
		r.Header.Set("Access-Control-Request-Method", "POST")
		r.Header.Set("Access-Control-Request-Headers", "content-type, mcp-session-id, mcp-param-x")

		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)

		if w.Code != want {
			t.Errorf("%s: status %d, want %d", origin, w.Code, want)
		}

		got := w.Header()
		if want != 204 {
			if got.Get("Access-Control-Allow-Origin") != "" {
				t.Errorf("%s: %v", origin, got)
			}

			continue
		}

		for name, want := range map[string]string{
			"Access-Control-Allow-Origin": origin, "Access-Control-Allow-Methods": "DELETE", "Access-Control-Allow-Headers": "mcp-param-x",
			"Access-Control-Expose-Headers": "Mcp-Session-Id", "Vary": "Origin",
		} {
			if !strings.Contains(got.Get(name), want) {
				t.Errorf("%s is %q, want %s in it", name, got.Get(name), want)
			}
		}

		if got.Get("Access-Control-Allow-Credentials") != "" {
			t.Error("cookies must not be allowed")
		}
	}
}

func TestNewGuardRefuses(t *testing.T) {
	t.Parallel()

	for _, o := range []string{"", "null", "*", "app.example", "https://app.example/", "https://*.example", "https://", "https://a b"} {
		if _, err := NewGuard(GuardConfig{AllowedOrigins: []string{"https://good.example", o}}); err == nil {
			t.Errorf("%q is taken for an origin", o)
		}
	}
}
