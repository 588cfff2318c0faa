package proxy

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
)

func TestConfigProblems(t *testing.T) {
	keys, err := NewKeyring(NewKey())
	if err != nil {
		t.Fatal(err)
	}

	cfg := DefaultConfig()
	cfg.MaxBody = 0
	cfg.KeepAlive = -1
	cfg.Servers = []Server{{Name: "a", Path: "mcp"}, {Name: "a", Path: "/c/x", Transport: "smoke", Replay: "always"}}

	_, err = New(cfg, Deps{Keys: keys})
	if err == nil {
		t.Fatal("no error")
	}

	for _, want := range []string{"body", "keep-alive", `"mcp"`, "upstream", `two servers are named "a"`, `"/c/x"`, `"smoke"`, `"always"`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no word of %s in: %v", want, err)
		}
	}

	if _, err := New(DefaultConfig(), Deps{}); err == nil {
		t.Error("no keys, no error")
	}
}

// TestUpdate: servers come and go while the proxy runs, and one that stays keeps
// its sessions, also behind another address.
func TestUpdate(t *testing.T) {
	var cfg Config

	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { cfg = *c })
	r.backend.start(process{handler: &stub{prefix: "one-"}})

	id := r.initialize()
	l := r.listen(id)

	other := newBackend(t)
	other.start(process{handler: &stub{prefix: "two-"}})

	to, err := url.Parse("http://" + other.addr + "/mcp")
	if err != nil {
		t.Fatal(err)
	}

	second := DefaultServer(to)
	second.Name, second.Path = "second", "/second"
	cfg.Servers = append(slices.Clone(cfg.Servers), second)

	if err := r.proxy.Update(cfg); err != nil {
		t.Fatal(err)
	}

	g := r.do(t.Context(), http.MethodPost, "/second", "", initBody)
	if g.status != 200 {
		t.Fatalf("%d %s", g.status, g.body)
	}

	// A session of one server is none of another's.
	if g := r.do(t.Context(), http.MethodPost, "/second", id, callBody(1, "x")); g.status != 404 {
		t.Errorf("%d %s", g.status, g.body)
	}

	cfg.Servers = slices.Clone(cfg.Servers)
	cfg.Servers[0].Upstream = to

	if err := r.proxy.Update(cfg); err != nil {
		t.Fatal(err)
	}

	if g := r.post(id, callBody(1, "x")); !strings.Contains(g.body, "ran x") {
		t.Errorf("%d %s", g.status, g.body)
	}

	if n := other.count(1, methodInitialize); n != 2 {
		t.Errorf("%d initialize", n)
	}

	bad := cfg
	bad.MaxBody = 0

	if err := r.proxy.Update(bad); err == nil {
		t.Error("no error")
	}

	cfg.Servers = cfg.Servers[1:]

	if err := r.proxy.Update(cfg); err != nil {
		t.Fatal(err)
	}

	l.end(t)

	if g := r.post(id, callBody(1, "x")); g.status != 404 {
		t.Errorf("%d %s", g.status, g.body)
	}
}

// TestVia: a backend without a network.
func TestVia(t *testing.T) {
	away := true
	via := roundTripFunc(func(req *http.Request) (*http.Response, error) {
		if away {
			away = false
			return nil, fmt.Errorf("starting: %w", syscall.ECONNREFUSED)
		}

		rec := httptest.NewRecorder()
		echo().ServeHTTP(rec, req)

		return rec.Result(), nil
	})

	r := newRig(t, func(c *Config, d *Deps, r *rig) {
		d.Suspect, r.blind = nil, true
		c.Servers[0].Upstream, c.Servers[0].Transport, c.Servers[0].Via = nil, TransportStdio, RoundTripper(via)
	})

	if g := r.post("", initBody); g.status != 200 || g.header.Get("Mcp-Session-Id") == "" {
		t.Errorf("%d %s", g.status, g.body)
	}
}

type roundTripFunc func(*http.Request) (*http.Response, error)

func (f roundTripFunc) RoundTrip(req *http.Request) (*http.Response, error) { return f(req) }
