package admin

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestGuard sends what a browser would send for a foreign web page, over a real
// loopback connection.
func TestGuard(t *testing.T) {
	f := newFake()
	srv := httptest.NewServer(New(f.deps(NewFeed())))
	defer srv.Close()
	port := srv.Listener.Addr().String()[len("127.0.0.1"):]
	tests := []struct {
		name, method, path, host string
		header                   map[string]string
		want                     int
	}{
		{"by address", "GET", "/v1/servers", "127.0.0.1" + port, nil, 200},
		{"by name", "GET", "/v1/servers", "localhost" + port, nil, 200},
		{"IPv6", "GET", "/v1/servers", "[::1]" + port, nil, 200},
		{"without a port", "GET", "/v1/servers", "localhost", nil, 200},
		{"rebound name", "GET", "/v1/servers", "evil.example" + port, nil, 403},
		{"name that begins well", "GET", "/v1/servers", "localhost.evil.example", nil, 403},
		{"own page", "POST", "/v1/quiesce", "localhost" + port, map[string]string{"Origin": "http://localhost" + port, "Sec-Fetch-Site": "same-origin"}, 200},
		{"foreign page", "POST", "/v1/quiesce", "localhost" + port, map[string]string{"Origin": "https://evil.example"}, 403},
		{"foreign page reads", "GET", "/v1/servers", "localhost" + port, map[string]string{"Origin": "https://evil.example"}, 403},
		{"null origin", "POST", "/v1/quiesce", "localhost" + port, map[string]string{"Origin": "null"}, 403},
		{"another port", "POST", "/v1/quiesce", "localhost" + port, map[string]string{"Origin": "http://localhost:1"}, 403},
		{"form of a foreign page", "POST", "/v1/quiesce", "localhost" + port, map[string]string{"Sec-Fetch-Site": "cross-site"}, 403},
		{"preflight", "OPTIONS", "/v1/quiesce", "localhost" + port, map[string]string{"Origin": "https://evil.example"}, 403},
		{"link to the page", "GET", "/", "localhost" + port, map[string]string{"Sec-Fetch-Site": "cross-site"}, 200},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), tt.method, srv.URL+tt.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Host = tt.host
			for k, v := range tt.header {
				r.Header.Set(k, v)
			}
			resp, err := srv.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			if resp.StatusCode != tt.want {
				t.Errorf("status %d, want %d", resp.StatusCode, tt.want)
			}
			for k := range resp.Header {
				if len(k) > 14 && k[:14] == "Access-Control" {
					t.Errorf("a CORS header: %s", k)
				}
			}
		})
	}
}
