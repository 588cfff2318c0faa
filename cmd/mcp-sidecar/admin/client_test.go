package admin

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestClient(t *testing.T) {
	f := newFake()
	d := f.deps(NewFeed())
	d.Token = func() (string, bool, error) { return "right", true, nil }
	srv := httptest.NewServer(New(d))
	defer srv.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("right\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := NewClient(strings.TrimPrefix(srv.URL, "http://")+"/", token)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if s, err := c.Status(ctx); err != nil || s.Version != "v1" || len(s.Servers) != 1 {
		t.Errorf("Status: %+v, %v", s, err)
	}
	if s, err := c.Servers(ctx); err != nil || len(s) != 1 || s[0].Generation != 2 {
		t.Errorf("Servers: %+v, %v", s, err)
	}
	if s, err := c.Check(ctx, "default"); err != nil || s.State != "settled" {
		t.Errorf("Check: %+v, %v", s, err)
	}
	if v, err := c.Register(ctx, "x", Registration{Servers: []string{"default"}}); err != nil || v.ID != "x" {
		t.Errorf("Register: %+v, %v", v, err)
	}
	if v, err := c.Conversation(ctx, "x"); err != nil || v.State != "stale" {
		t.Errorf("Conversation: %+v, %v", v, err)
	}
	if p, err := c.Conversations(ctx, conversation.Query{State: "stale", Limit: 5}); err != nil || len(p.Conversations) != 1 {
		t.Errorf("Conversations: %+v, %v", p, err)
	}
	if v, err := c.Refresh(ctx, "x"); err != nil || v.ID != "x" {
		t.Errorf("Refresh: %+v, %v", v, err)
	}
	if err := c.Remove(ctx, "x"); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if err := c.Remove(ctx, "x"); err == nil || !strings.Contains(err.Error(), "isn't registered") {
		t.Errorf("Remove again: %v", err)
	}
	if err := c.Remove(ctx, "a/../b"); err == nil || !strings.Contains(err.Error(), "only A-Z") {
		t.Errorf("Remove of a path: %v", err)
	}
	if err := c.Reload(ctx); err != nil {
		t.Errorf("Reload: %v", err)
	}
	if err := c.Quiesce(ctx); err != nil || !f.quiesced {
		t.Errorf("Quiesce: %v", err)
	}

	c, _ = NewClient(srv.URL, "")
	if err := c.Quiesce(ctx); err == nil || !strings.Contains(err.Error(), "use --admin-token-file") {
		t.Errorf("without a token: %v", err)
	}
	if err := os.WriteFile(token, []byte("wrong"), 0o600); err != nil {
		t.Fatal(err)
	}
	c, _ = NewClient(srv.URL, token)
	if err := c.Quiesce(ctx); err == nil || !strings.Contains(err.Error(), "doesn't accept the token in "+token) {
		t.Errorf("with a wrong token: %v", err)
	}
}

func TestClientExplains(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	c, _ := NewClient("http://"+l.Addr().String(), "")
	want := "connection refused at http://" + l.Addr().String() + ": is mcp-sidecar running? use --admin"
	if err := c.Quiesce(t.Context()); err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}

	for name, h := range map[string]http.HandlerFunc{
		"another program": func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusNotFound) },
		"a web page":      func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") },
		"a redirect":      func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/x", http.StatusFound) },
	} {
		srv := httptest.NewServer(h)
		c, _ := NewClient(srv.URL, "")
		if _, err := c.Servers(t.Context()); err == nil || !strings.Contains(err.Error(), "use --admin") {
			t.Errorf("%s: %v", name, err)
		}
		srv.Close()
	}
	for _, bad := range []string{"", "ftp://x", "http://", "::"} {
		if _, err := NewClient(bad, ""); err == nil {
			t.Errorf("NewClient(%q) succeeds", bad)
		}
	}
}
