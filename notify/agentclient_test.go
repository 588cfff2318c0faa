package notify

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"testing"
)

func TestAgentClient(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		forbid bool
		key    func() (string, error)
		want   Reason
		body   string
	}{
		"2xx": {answer: status(200, `{"items":[]}`), body: `{"items":[]}`},
		"a body larger than what refreshes read": {
			answer: status(200, `{"a":"`+strings.Repeat("x", 2*maxAnswer)+`"}`), body: `{"a":"` + strings.Repeat("x", 2*maxAnswer) + `"}`,
		},
		"page": {answer: func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			_, _ = io.WriteString(w, "<html>canary-in-page") // the client may be gone
		}, want: ReasonIngress},
		"refused key": {answer: status(401, `{"detail":"Unauthorized"}`), want: ReasonAuth},
		"missing":     {answer: status(404, `{"detail":"Not Found"}`), want: ReasonNotFound},
		"failed":      {answer: status(500, `{"exception":"token=canary-in-text"}`), want: ReasonServerError},
		"redirect": {answer: func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/?k=canary-in-location", http.StatusTemporaryRedirect)
		}, want: ReasonRedirect},
		"forbidden address": {answer: status(200, `{}`), forbid: true, want: ReasonForbiddenAddress},
		"unreadable key": {
			answer: status(200, `{}`), want: ReasonCredential,
			key: func() (string, error) { return "", errors.New("token=canary-key") },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFakeAgentServer(t)
			f.on("GET /prefix/api/conversations/search", func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get(keyHeader) != "canary-key" || r.URL.RawQuery != "b=2&k=canary-in-query" {
					t.Errorf("asked with key %q and query %q", r.Header.Get(keyHeader), r.URL.RawQuery)
				}
				tt.answer(w, r)
			})
			s := DefaultAgentServer("default", mustURL(t, f.URL+"/prefix?k=canary-in-query"))
			s.APIKey = func() (string, error) { return "canary-key", nil }
			if tt.key != nil {
				s.APIKey = tt.key
			}
			s.Forbidden = func(a netip.AddrPort) bool { return tt.forbid && a.Addr().IsLoopback() }
			c, err := NewAgentClient(s)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			body, err := c.Get(t.Context(), "api/conversations/search", url.Values{"b": {"2"}})
			if got := ReasonOf(err); got != tt.want {
				t.Errorf("got %q, want %q (%v)", got, tt.want, err)
			}
			if err != nil {
				if strings.Contains(err.Error(), "canary-") {
					t.Errorf("the text tells too much: %v", err)
				}

				return
			}
			defer body.Close()
			b, err := io.ReadAll(body)
			if err != nil || string(b) != tt.body {
				t.Errorf("read %.60q, %v", b, err)
			}
		})
	}
}

func TestAgentClientEndsWithItsContext(t *testing.T) {
	f := newFakeAgentServer(t)
	f.on("GET /slow", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-r.Context().Done()
	})
	c, err := NewAgentClient(DefaultAgentServer("default", mustURL(t, f.URL)))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	body, err := c.Get(ctx, "slow", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	cancel()
	if _, err := io.ReadAll(body); err == nil {
		t.Error("an answer without an end ends well")
	}
}

func TestNewAgentClientChecks(t *testing.T) {
	if _, err := NewAgentClient(DefaultAgentServer("default", mustURL(t, "http://169.254.169.254"))); err == nil {
		t.Error("a metadata address is accepted")
	}
}
