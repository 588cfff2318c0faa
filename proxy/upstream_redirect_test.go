package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

func TestSendRedirects(t *testing.T) {
	t.Parallel()

	body := bytes.Repeat([]byte("0123456789abcdef"), 2<<20/16)

	var foreign atomic.Int32

	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { foreign.Add(1) }))
	t.Cleanup(other.Close)

	mux := http.NewServeMux()
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)

	mux.HandleFunc("/mcp/", func(w http.ResponseWriter, r *http.Request) {
		got, _ := io.ReadAll(r.Body)
		fmt.Fprint(w, r.Method, " ", r.URL.RequestURI(), " ", r.Header.Get("Authorization"), " ", bytes.Equal(got, body))
	})

	tests := []struct {
		name, method string
		code         int
		location     string
		want         string // "" is errRedirect
	}{
		{"relative", "POST", 307, "mcp/", "200 POST /mcp/ a true"},
		{"absolute path", "POST", 308, "/mcp/?x=1", "200 POST /mcp/?x=1 a true"},
		{"own host", "POST", 307, s.URL + "/mcp/", "200 POST /mcp/ a true"},
		{"own host as it was named", "POST", 308, "http://mcp.example:1/mcp/", "200 POST /mcp/ a true"},
		{"own host as it was forwarded", "POST", 308, "https://public.example/mcp/", "200 POST /mcp/ a true"},
		{"the same behind TLS", "POST", 308, "https://mcp.example:1/mcp/", "200 POST /mcp/ a true"},
		{"network path of its own", "POST", 307, strings.TrimPrefix(s.URL, "http:") + "/mcp/", "200 POST /mcp/ a true"},
		{"GET", "GET", 302, "/mcp/", "200 GET /mcp/ a true"},
		{"DELETE", "DELETE", 307, "/mcp/", "200 DELETE /mcp/ a true"},
		{"would become a GET", "POST", 302, "/mcp/", "302 "},
		{"see other", "POST", 303, "/mcp/", "303 "},
		{"foreign host", "POST", 307, other.URL + "/mcp/", ""},
		{"foreign host, see other", "POST", 303, other.URL + "/mcp/", ""},
		{"foreign host, GET", "GET", 302, other.URL + "/mcp/", ""},
		{"foreign network path", "POST", 307, strings.TrimPrefix(other.URL, "http:") + "/mcp/", ""},
		{"other port", "POST", 307, "http://127.0.0.1:1/mcp/", ""},
		{"other scheme", "POST", 307, "ftp://mcp.example:1/mcp/", ""},
		{"user", "POST", 307, strings.Replace(s.URL, "http://", "http://u:p@", 1) + "/mcp/", ""},
		{"to itself", "POST", 307, "", ""},
		{"not a URL", "POST", 307, "http://[::1", ""},
		{"no Location", "POST", 307, "-", "307 "},
	}
	for i, tt := range tests {
		path := fmt.Sprint("/from/", i)
		if tt.location == "" {
			tt.location = path
		}

		if !strings.Contains(tt.location, "/") || tt.location == "mcp/" {
			tt.location = strings.Replace(tt.location, "mcp/", "../mcp/", 1)
		}

		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			if tt.location != "-" {
				w.Header().Set("Location", tt.location)
			}

			w.WriteHeader(tt.code)
		})
	}

	for i, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()

			req, err := http.NewRequestWithContext(t.Context(), tt.method, fmt.Sprint(s.URL, "/from/", i), http.NoBody)
			if err != nil {
				t.Fatal(err)
			}

			req.Host = "mcp.example:1"
			req.Header.Set("Authorization", "a")
			req.Header.Set("X-Forwarded-Host", "public.example")

			resp, _, err := send(testPool(t), req, body)
			if tt.want == "" {
				if !errors.Is(err, errRedirect) {
					t.Fatalf("got %v", err)
				}

				return
			}

			if err != nil {
				t.Fatal(err)
			}
			defer resp.Body.Close()

			got, _ := io.ReadAll(resp.Body)
			if s := fmt.Sprint(resp.StatusCode, " ", string(got)); s != tt.want {
				t.Errorf("got %s, want %s", s, tt.want)
			}
		})
	}

	t.Cleanup(func() {
		if n := foreign.Load(); n != 0 {
			t.Errorf("the foreign host got %d requests", n)
		}
	})
}

func TestSendRedirectLoops(t *testing.T) {
	t.Parallel()

	var hits atomic.Int32

	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := hits.Add(1)

		next := "/b"
		switch r.URL.Path {
		case "/b":
			next = "/a"
		case "/n":
			next = fmt.Sprint("/n?", n)
		}

		http.Redirect(w, r, next, http.StatusTemporaryRedirect)
	}))
	t.Cleanup(s.Close)

	for _, tt := range []struct {
		path string
		hits int32
	}{{"/a", 2}, {"/n", maxRedirects + 1}} {
		hits.Store(0)

		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.URL+tt.path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}

		resp, tr, err := send(testPool(t), req, []byte("x"))
		if !errors.Is(err, errRedirect) || hits.Load() != tt.hits || !tr.Answered {
			t.Errorf("%s: %v after %d requests, %+v", tt.path, err, hits.Load(), tr)
		}

		if err == nil {
			_ = resp.Body.Close()
		}
	}
}
