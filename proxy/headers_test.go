package proxy

import (
	"crypto/tls"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func mustURL(tb testing.TB, s string) *url.URL {
	tb.Helper()

	u, err := url.Parse(s)
	if err != nil {
		tb.Fatal(err)
	}

	return u
}

// headerOf builds a header from names and values, as they came.
func headerOf(pairs ...string) http.Header {
	h := make(http.Header)
	for i := 0; i < len(pairs); i += 2 {
		h.Add(pairs[i], pairs[i+1])
	}

	return h
}

func TestForwardedHeader(t *testing.T) {
	t.Parallel()

	agent := []string{"User-Agent", "a"}
	tests := []struct {
		name      string
		host      string
		registers bool
		in, want  []string
	}{
		{
			"end to end", "", false,
			[]string{"Authorization", "Bearer x", "mcp-session-id", "s", "MCP-Protocol-Version", "2025-11-25", "Mcp-Param-X", "=?base64?eA==?=", "Accept", "a", "Accept", "b", "Content-Type", "application/json", "Last-Event-ID", "7", "Cookie", "c", "X-Own", "1", "Idempotency-Key", "k"},
			[]string{"Authorization", "Bearer x", "mcp-session-id", "s", "MCP-Protocol-Version", "2025-11-25", "Mcp-Param-X", "=?base64?eA==?=", "Accept", "a", "Accept", "b", "Content-Type", "application/json", "Last-Event-ID", "7", "Cookie", "c", "X-Own", "1", "Idempotency-Key", "k"},
		},
		{
			"hop by hop", "", false,
			[]string{"Connection", "keep-alive, X-Hop", "connection", "close,TE", "X-Hop", "1", "Keep-Alive", "1", "TE", "trailers", "Trailer", "x", "Transfer-Encoding", "chunked", "Upgrade", "h2c", "Proxy-Authorization", "p", "Proxy-Connection", "p", "Expect", "100-continue", "Content-Length", "4", "X-Own", "1"},
			[]string{"X-Own", "1"},
		},
		{
			"claims about the client", "", false,
			[]string{"X-Forwarded-For", "1.2.3.4", "X-Forwarded-Host", "h", "X-Forwarded-Proto", "https", "X-Forwarded-Anything", "x", "Forwarded", "for=x", "X-Real-IP", "1"},
			nil,
		},
		{"Host is rewritten", "mcp.example:8080", false, nil, []string{"X-Forwarded-Host", "mcp.example:8080", "X-Forwarded-Proto", "http"}},
		{"Host is the backend's", "LOCALHOST:9000", false, nil, nil},
		{
			"registration", "", false,
			[]string{"X-Openhands-Serverconversation-Id", "c", "X-Conversation", "c", "X-Sidecar-Agent-Server", "main", "X-Session-API-Key", "secret"},
			nil,
		},
		{"registration by URL", "", true, []string{"X-Session-API-Key", "secret"}, nil},
		{"a key of the backend", "", false, []string{"X-Session-API-Key", "secret"}, []string{"X-Session-API-Key", "secret"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			f := forwarding{
				upstream: mustURL(t, "http://localhost:9000/mcp"), host: tt.host, scheme: "http", registers: tt.registers,
				conversationHeaders: []string{"X-Openhands-Serverconversation-Id", "X-Conversation"},
			}
			in := headerOf(append(tt.in, agent...)...)
			before := in.Clone()

			got, err := f.header(in)
			if err != nil {
				t.Fatal(err)
			}

			if diff := cmp.Diff(headerOf(append(tt.want, agent...)...), got); diff != "" {
				t.Error(diff)
			}

			if diff := cmp.Diff(before, in); diff != "" {
				t.Errorf("the client's header was changed: %s", diff)
			}
		})
	}

	f := forwarding{upstream: mustURL(t, "http://localhost:9000/mcp")}
	if got, err := f.header(http.Header{}); err != nil || len(got) != 1 || got["User-Agent"] != nil {
		t.Errorf("without a user agent: %v, %v", got, err)
	}
}

func TestForwardedHeaderRefuses(t *testing.T) {
	t.Parallel()

	f := forwarding{upstream: mustURL(t, "http://localhost:9000/mcp")}

	for _, v := range []string{
		"Mcp-Session-Id", "mcp-session-id", "close, AUTHORIZATION", "keep-alive,\tMCP-Protocol-Version", "Mcp-Method", "Origin",
		"Host", "Content-Type", "content-length", "Accept", "Cookie", "Last-Event-ID", "X-Sidecar-Agent-Server", "X-Session-API-Key",
	} {
		if _, err := f.header(headerOf("Connection", "x", "Connection", v)); !errors.Is(err, errConnectionHeader) {
			t.Errorf("Connection: %s: got %v", v, err)
		}
	}
}

func TestResponseHeader(t *testing.T) {
	t.Parallel()

	src := headerOf(
		"Content-Type", "text/event-stream", "WWW-Authenticate", "Bearer a", "WWW-Authenticate", "Basic b", "Allow", "POST", "Retry-After", "1",
		"Content-Length", "4", "Transfer-Encoding", "chunked", "Connection", "X-Hop, Mcp-Protocol-Version", "X-Hop", "1", "Keep-Alive", "timeout=5",
		"Mcp-Protocol-Version", "2025-11-25", "Mcp-Session-Id", "s", "Vary", "Accept", "X-Tab", "a\tb", "X-Bad", "a\x01b", "X-Bad", "good",
		"Access-Control-Allow-Origin", "*",
	)
	want := headerOf(
		"Content-Type", "text/event-stream", "WWW-Authenticate", "Bearer a", "WWW-Authenticate", "Basic b", "Allow", "POST", "Retry-After", "1",
		"Mcp-Protocol-Version", "2025-11-25", "Vary", "Origin", "Vary", "Accept", "X-Tab", "a\tb", "X-Bad", "good",
		"Access-Control-Allow-Origin", "*",
	)
	got := headerOf("Vary", "Origin")

	responseHeader(got, src)

	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}

	allowed := headerOf("Access-Control-Allow-Origin", "https://app.example")

	responseHeader(allowed, headerOf("Access-Control-Allow-Origin", "*", "Access-Control-Expose-Headers", "x"))

	if diff := cmp.Diff(headerOf("Access-Control-Allow-Origin", "https://app.example"), allowed); diff != "" {
		t.Error(diff)
	}
}

func TestBackendSession(t *testing.T) {
	t.Parallel()

	tests := []struct {
		name   string
		values []string
		id     string
		ok     bool
	}{
		{"none", nil, "", true},
		{"good", []string{"mcp-session-1"}, "mcp-session-1", true},
		{"empty", []string{""}, "", false},
		{"space", []string{"a b"}, "", false},
		{"control byte", []string{"a\x02"}, "", false},
		{"two", []string{"a", "b"}, "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			id, ok := backendSession(http.Header{headerSession: tt.values})
			if ok != tt.ok || ok && id != tt.id {
				t.Errorf("got %q, %v", id, ok)
			}
		})
	}
}

func TestLocalLocation(t *testing.T) {
	t.Parallel()

	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://127.0.0.1:9000/authorize", http.NoBody)

	for in, want := range map[string]string{
		"http://127.0.0.1:9000/login?x=1": "/login?x=1",
		"/login":                          "/login",
		"https://idp.example/login":       "https://idp.example/login",
		"":                                "",
	} {
		h := headerOf("Location", in)
		localLocation(h, req)

		if got := h.Get("Location"); got != want {
			t.Errorf("%s: got %s, want %s", in, got, want)
		}
	}
}

// TestForwardedScheme: behind an ingress that ends TLS, the public URL says what
// clients use.
func TestForwardedScheme(t *testing.T) {
	t.Parallel()

	cfg := &Config{PublicURLs: []*url.URL{{Scheme: "https", Host: "mcp.example"}, {Scheme: "http", Host: "mcp.example:81"}}}

	for _, tt := range []struct {
		host string
		tls  *tls.ConnectionState
		want string
	}{
		{"mcp.example", nil, "https"},
		{"MCP.example", nil, "https"},
		{"mcp.example:81", nil, "http"},
		{"mcp.example:82", nil, "http"},
		{"127.0.0.1", nil, "http"},
		{"127.0.0.1", &tls.ConnectionState{}, "https"},
	} {
		if got := scheme(cfg, &http.Request{Host: tt.host, TLS: tt.tls}); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.host, got, tt.want)
		}
	}
}
