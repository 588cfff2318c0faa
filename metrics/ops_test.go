package metrics

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func serve(t *testing.T, o Ops, r *http.Request) (status int, header http.Header, body string) {
	t.Helper()

	w := httptest.NewRecorder()
	o.Handler(NewRegistry(Build{})).ServeHTTP(w, r)

	return w.Code, w.Header(), w.Body.String()
}

func TestProbes(t *testing.T) {
	t.Parallel()

	failing := func(why string) func() error { return func() error { return errors.New(why) } }
	fine := func() error { return nil }

	tests := []struct {
		name   string
		ops    Ops
		path   string
		status int
		body   string
	}{
		{"live", Ops{Live: fine}, "/livez", 200, "ok\n"},
		{"ready", Ops{Ready: fine}, "/readyz", 200, "ok\n"},
		{"started", Ops{Started: fine}, "/startupz", 200, "ok\n"},
		{"no check", Ops{}, "/readyz", 200, "ok\n"},
		{"not live", Ops{Live: failing("reconcile loop stalled")}, "/livez", 503, "not live: reconcile loop stalled\n"},
		{"not ready", Ops{Ready: failing("quiescing")}, "/readyz", 503, "not ready: quiescing\n"},
		{"not started", Ops{Started: failing("opening the store")}, "/startupz", 503, "not started: opening the store\n"},
		{"each its own", Ops{Ready: failing("quiescing")}, "/livez", 200, "ok\n"},
		{"unknown path", Ops{}, "/healthz", 404, "404 page not found\n"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			status, _, body := serve(t, tt.ops, httptest.NewRequest(http.MethodGet, tt.path, http.NoBody))
			if status != tt.status || body != tt.body {
				t.Errorf("got %d %q, want %d %q", status, body, tt.status, tt.body)
			}
		})
	}
}

func TestMetricsNegotiation(t *testing.T) {
	t.Parallel()

	tests := []struct {
		name, accept, contentType string
		eof                       bool
	}{
		{"plain", "", "text/plain; version=0.0.4", false},
		{"open metrics", "application/openmetrics-text;version=1.0.0", "application/openmetrics-text; version=1.0.0", true},
		{"protobuf", "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited", "application/vnd.google.protobuf", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			r := httptest.NewRequest(http.MethodGet, "/metrics", http.NoBody)
			r.Header.Set("Accept", tt.accept)

			status, header, body := serve(t, Ops{}, r)
			if status != http.StatusOK {
				t.Fatalf("status %d", status)
			}

			if got := header.Get("Content-Type"); !strings.HasPrefix(got, tt.contentType) {
				t.Errorf("content type %q, want %q", got, tt.contentType)
			}

			if got := strings.HasSuffix(body, "# EOF\n"); got != tt.eof {
				t.Errorf("ends in # EOF: %v, want %v", got, tt.eof)
			}

			if !strings.Contains(body, "mcp_sidecar_build_info") {
				t.Error("no build info")
			}
		})
	}
}

func TestOnlyGetAndHead(t *testing.T) {
	t.Parallel()

	srv := httptest.NewServer(Ops{}.Handler(NewRegistry(Build{})))
	defer srv.Close()

	for _, path := range []string{"/metrics", "/livez", "/readyz", "/startupz"} {
		for method, want := range map[string]int{
			http.MethodGet:     200,
			http.MethodHead:    200,
			http.MethodPost:    405,
			http.MethodPut:     405,
			http.MethodDelete:  405,
			http.MethodOptions: 405,
		} {
			req, err := http.NewRequestWithContext(t.Context(), method, srv.URL+path, http.NoBody)
			if err != nil {
				t.Fatal(err)
			}

			resp, err := srv.Client().Do(req)
			if err != nil {
				t.Fatal(err)
			}

			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()

			if err != nil {
				t.Fatal(err)
			}

			if resp.StatusCode != want {
				t.Errorf("%s %s: got %d, want %d", method, path, resp.StatusCode, want)
			}

			if method == http.MethodHead && len(body) > 0 {
				t.Errorf("HEAD %s has a body", path)
			}

			if allow := resp.Header.Get("Allow"); want == 405 && allow != "GET, HEAD" {
				t.Errorf("%s %s: Allow %q", method, path, allow)
			}
		}
	}
}

func TestWebPagesAreRefused(t *testing.T) {
	t.Parallel()

	loopback := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9090}
	pod := &net.TCPAddr{IP: net.IPv4(10, 1, 2, 3), Port: 9090}

	tests := []struct {
		name, host, origin string
		local              net.Addr
		status             int
	}{
		{"localhost", "localhost:9090", "", loopback, 200},
		{"loopback address", "127.0.0.1:9090", "", loopback, 200},
		{"loopback address, IPv6", "[::1]:9090", "", &net.TCPAddr{IP: net.IPv6loopback, Port: 9090}, 200},
		{"without port", "localhost", "", loopback, 200},
		{"no host", "", "", loopback, 200},
		{"pod address forwarded over loopback", "10.1.2.3:9090", "", loopback, 200},
		{"rebound name", "evil.example:9090", "", loopback, 403},
		{"rebound name that looks local", "localhost.evil.example", "", loopback, 403},
		{"rebound name, mapped address", "evil.example", "", &net.TCPAddr{IP: net.ParseIP("::ffff:127.0.0.1"), Port: 9090}, 403},
		{"name of the pod", "pod-0.sidecars.svc:9090", "", pod, 200},
		{"own origin", "localhost:9090", "http://localhost:9090", loopback, 200},
		{"foreign origin", "localhost:9090", "http://evil.example", loopback, 403},
		{"other port", "localhost:9090", "http://localhost:3000", loopback, 403},
		{"null origin", "10.1.2.3:9090", "null", pod, 403},
		{"malformed origin", "10.1.2.3:9090", "http://[", pod, 403},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			for _, path := range []string{"/metrics", "/readyz"} {
				r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
				r = r.WithContext(context.WithValue(t.Context(), http.LocalAddrContextKey, tt.local))
				r.Host = tt.host

				if tt.origin != "" {
					r.Header.Set("Origin", tt.origin)
				}

				if status, _, _ := serve(t, Ops{}, r); status != tt.status {
					t.Errorf("%s: got %d, want %d", path, status, tt.status)
				}
			}
		})
	}
}
