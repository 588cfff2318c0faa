package agents

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestMeets(t *testing.T) {
	s := newSandbox(t, "key-1")
	r := newRig(t, stateFile(t), agentConfig("http://agents.internal:8000"), nil)
	if diff := cmp.Diff([]string{"one"}, r.discoverer.names()); diff != "" {
		t.Errorf("targets at first (-want +got):\n%s", diff)
	}
	r.seen("x", s.URL, "key-1")
	if got := r.at("x"); got != "boxes "+s.URL {
		t.Errorf("x is at %q", got)
	}
	r.wantKey("boxes "+s.URL, "key-1")
	eventually(t, "it is looked at", func() bool { return slices.Equal(r.discoverer.names(), []string{"boxes " + s.URL, "one"}) })

	// Without a conversation, its own are still looked for.
	other := newSandbox(t, "")
	r.seen("", other.URL+"/", "")
	r.wantKey("boxes "+other.URL, "")
	if page, err := r.registry.List(conversation.Query{}); err != nil || len(page.Items) != 1 {
		t.Errorf("conversations: %+v %v", page.Items, err)
	}

	r.seen("y", "one", "key-2")
	r.seen("z", "http://AGENTS.internal:8000/", "key-2")
	r.wantKey("one", "key-2")
	if r.at("y") != "one" || r.at("z") != "one" {
		t.Errorf("y is at %q, z at %q", r.at("y"), r.at("z"))
	}
	r.idle()
	r.wantSilence("key-1", "key-2")
}

func TestRefusedAgentServers(t *testing.T) {
	own := newSandbox(t, "")
	r := newRig(t, stateFile(t), agentConfig("http://agents.internal:8000"), nil)
	r.own = []netip.AddrPort{netip.MustParseAddrPort(mustParse(t, own.URL).Host)}
	for _, s := range []string{
		"two", "boxes", own.URL, "http://169.254.169.254", "http://[::ffff:a9fe:a9fe]", "http://0x7f000001:8000", "http://2130706433:8000",
		"http://127.1:8000", "http://user:canary@127.0.0.1:8000", "file:///etc/passwd", "gopher://127.0.0.1:70", "http://127.0.0.1:8000/x",
		"http://127.0.0.1:8000/?key=canary", "https://127.0.0.1:8000", "http://127.0.0.1.evil.com:8000", "http://0.0.0.0:8000", "http://[::]:8000",
	} {
		r.seen("x", s, "canary")
		if got := r.at("x"); got != "" {
			t.Errorf("%s: x is at %q", s, got)
		}
		_, _, err := r.Register(t.Context(), conversation.Registration{ID: "x", AgentServer: s, Source: conversation.SourceAdmin})
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: registered: %v", s, err)
		}
		if _, err := r.Named("boxes", s, "canary"); err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("%s: an agent server can be called so: %v", s, err)
		}
	}
	if _, err := r.Named("boxes", "http://agents.internal:8000", "canary"); !errors.Is(err, conversation.ErrForbidden) {
		t.Errorf("another's address: %v", err)
	}
	r.idle()
	if key, _ := r.reconciler.key(t, "one"); key != "" {
		t.Error("a key is learnt from another agent server")
	}
	if len(r.discoverer.names()) != 1 || own.asked != 0 {
		t.Errorf("targets: %v", r.discoverer.names())
	}
	r.wantSilence("canary")
	if n := strings.Count(r.logs.String(), "isn't allowed"); n != 1 {
		t.Errorf("%d warnings", n)
	}
}

// TestOwnAddressAtDialTime has a name of a pattern lead to a listener.
func TestOwnAddressAtDialTime(t *testing.T) {
	own := newSandbox(t, "")
	port := mustParse(t, own.URL).Port()
	cfg := agentConfig("http://localhost:" + port)
	r := newRig(t, stateFile(t), cfg, nil)
	r.own = []netip.AddrPort{netip.MustParseAddrPort("0.0.0.0:" + port)}
	if r.has(t.Context(), conversation.Instance{AgentServer: "one"}, "x") || own.asked != 0 {
		t.Error("the sidecar's own listener is called")
	}
}

func TestIsOwn(t *testing.T) {
	listeners := []netip.AddrPort{
		netip.MustParseAddrPort("127.0.0.1:9091"), netip.MustParseAddrPort("[::]:8080"), netip.MustParseAddrPort("10.0.0.1:9092"),
	}
	local := func(ip netip.Addr) bool { return ip == netip.MustParseAddr("10.0.0.1") }
	for to, want := range map[string]bool{
		"127.0.0.1:9091": true, "[::ffff:127.0.0.1]:9091": true, "127.0.0.2:9091": false, "10.0.0.1:9091": false, "127.0.0.1:9092": false,
		"127.0.0.1:8080": true, "[::1]:8080": true, "10.0.0.1:8080": true, "10.0.0.2:8080": false, "10.0.0.1:9092": true, "10.0.0.1:80": false,
	} {
		if got := isOwn(netip.MustParseAddrPort(to), listeners, local); got != want {
			t.Errorf("%s: %v", to, got)
		}
	}
	if !localAddress(netip.MustParseAddr("127.0.0.1")) || localAddress(netip.MustParseAddr("203.0.113.7")) {
		t.Error("the addresses of this machine aren't known")
	}
}

// TestKeyIsTriedFirst has requests bring wrong and new keys.
func TestKeyIsTriedFirst(t *testing.T) {
	s := newSandbox(t, "key-1")
	r := newRig(t, stateFile(t), agentConfig("http://agents.internal:8000"), nil)
	name := "boxes " + s.URL
	r.seen("x", s.URL, "key-1")
	r.wantKey(name, "key-1")
	r.idle()

	r.seen("x", s.URL, "canary-wrong")
	r.idle()
	r.wantKey(name, "key-1")
	s.change(func(s *sandbox) { s.asked = 0 })
	for range 100 {
		r.seen("x", s.URL, "canary-wrong")
	}
	r.idle()
	if s.asked != 0 {
		t.Errorf("a key that was refused is tried %d more times", s.asked)
	}

	s.change(func(s *sandbox) { s.key = "key-2" }) // its key changes
	r.pass()
	r.seen("x", s.URL, "key-2")
	r.wantKey(name, "key-2")
	r.idle()
	r.wantSilence("key-1", "key-2", "canary-wrong")

	// Not reachable: the old one stays, and the new one isn't given up.
	s.change(func(s *sandbox) { s.key = "key-3" })
	addr := s.Listener.Addr().String()
	s.Close()
	r.seen("x", s.URL, "key-3")
	r.idle()
	r.wantKey(name, "key-2")
	revive(t, s, addr)
	r.pass()
	r.seen("x", s.URL, "key-3")
	r.wantKey(name, "key-3")
}

// pass lets the time pass that must lie between two trials.
func (r *rig) pass() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, ag := range r.known {
		ag.triedAt = ag.triedAt.Add(-claimPause)
	}
	for id := range r.claims {
		r.claims[id] = r.claims[id].Add(-claimPause)
	}
}

// TestConfiguredKeyPrevails: where the operator gave a key file, no other key counts.
func TestConfiguredKeyPrevails(t *testing.T) {
	s := newSandbox(t, "from-file")
	file := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(file, []byte("from-file"), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg := agentConfig(s.URL)
	cfg.AgentServers[0].APIKeyFile = file
	r := newRig(t, stateFile(t), cfg, keyring(t))
	r.seen("x", s.URL, "from-request")
	r.idle()
	r.wantKey("one", "from-file")
	if err := os.WriteFile(file, []byte("rotated"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.wantKey("one", "rotated")
	if s.asked != 0 {
		t.Error("another key is tried")
	}
}

// TestKeptKeys restarts with and without keys that seal.
func TestKeptKeys(t *testing.T) {
	s := newSandbox(t, "canary-key")
	for name, tt := range map[string]struct {
		first, second bool
		other         bool
		want          string
	}{
		"sealed":            {first: true, second: true, want: "canary-key"},
		"in memory only":    {second: true},
		"by another key":    {first: true, second: true, other: true},
		"keys were taken":   {first: true},
		"never any of them": {},
	} {
		t.Run(name, func(t *testing.T) {
			keys, file := keyring(t), stateFile(t)
			if !tt.first {
				r := newRig(t, file, agentConfig("http://agents.internal:8000"), nil)
				r.learnAll(s)
			} else {
				r := newRig(t, file, agentConfig("http://agents.internal:8000"), keys)
				r.learnAll(s)
			}
			if tt.other {
				keys = keyring(t)
			}
			if !tt.second {
				keys = nil
			}
			r := newRig(t, file, agentConfig("http://agents.internal:8000"), keys)
			for _, agent := range []string{"boxes " + s.URL, "one"} {
				if key, known := r.reconciler.key(t, agent); !known || key != tt.want {
					t.Errorf("after a restart %s is known (%v) with key %q", agent, known, key)
				}
			}
			r.wantSilence("canary-key")
		})
	}
}

// learnAll has both agent servers bring a key, and stops.
func (r *rig) learnAll(s *sandbox) {
	r.t.Helper()
	r.seen("x", s.URL, "canary-key")
	r.seen("y", "one", "canary-key")
	r.wantKey("boxes "+s.URL, "canary-key")
	r.wantKey("one", "canary-key")
	r.idle()
	r.stop()
	r.wantSilence("canary-key")
}

// TestRefusedKeyIsTriedAgain: what failed because of the old key needn't wait once
// there is a new one.
func TestRefusedKeyIsTriedAgain(t *testing.T) {
	s := newSandbox(t, "key-1")
	r := newRig(t, stateFile(t), agentConfig("http://agents.internal:8000"), nil)
	if _, _, err := r.registry.Settle(t.Context(), "default", "sha256:1", nil, time.Now()); err != nil {
		t.Fatal(err)
	}
	r.seen("x", s.URL, "key-1")
	r.wantKey("boxes "+s.URL, "key-1")
	s.change(func(s *sandbox) { s.key = "key-2" })
	v, err := r.registry.Get("x")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.registry.Update(t.Context(), "x", func(c *conversation.Conversation) error {
		c.RefreshFailed(v, conversation.ConditionFailed, conversation.Failure{Reason: "auth"}, time.Now().Add(time.Hour))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	r.seen("x", s.URL, "key-2")
	eventually(t, "the next attempt is brought forward", func() bool {
		v, err := r.registry.Get("x")
		return err == nil && v.NextAttempt.Before(time.Now())
	})
}

// TestConversationMoves has another sandbox claim a conversation.
func TestConversationMoves(t *testing.T) {
	a, b := newSandbox(t, "", "x"), newSandbox(t, "key-b", "x", "y")
	r := newRig(t, stateFile(t), agentConfig("http://agents.internal:8000"), nil)
	r.seen("x", a.URL, "")
	r.seen("", b.URL, "key-b")
	r.wantKey("boxes "+a.URL, "")
	r.wantKey("boxes "+b.URL, "key-b")

	// The first still has it: nothing moves, however the claim is made.
	r.seen("x", b.URL, "key-b")
	r.idle()
	for _, reg := range []conversation.Registration{
		{ID: "x", AgentServer: "boxes", AgentURL: b.URL, Source: conversation.SourceDiscovery},
		{ID: "x", AgentServer: b.URL, Source: conversation.SourceAdmin, By: "boxes"},
		{ID: "x", AgentServer: b.URL, Source: conversation.SourceWebhook, By: "boxes"},
	} {
		r.pass()
		if _, _, err := r.Register(t.Context(), reg); err != nil {
			t.Errorf("%s: %v", reg.Source, err)
		}
		r.settled("x", b)
		if got := r.at("x"); got != "boxes "+a.URL {
			t.Errorf("%s: x moved to %q", reg.Source, got)
		}
	}

	// The first is gone: now it does.
	a.Close()
	r.pass()
	r.seen("x", b.URL, "key-b")
	eventually(t, "x moved", func() bool { return r.at("x") == "boxes "+b.URL })

	// To one that doesn't have it, it doesn't.
	b.change(func(b *sandbox) { b.has = nil })
	c := newSandbox(t, "")
	r.seen("", c.URL, "")
	r.wantKey("boxes "+c.URL, "")
	r.pass()
	r.seen("x", c.URL, "")
	r.settled("x", c)
	if got := r.at("x"); got != "boxes "+b.URL {
		t.Errorf("x moved to %q, which doesn't have it", got)
	}

	// The operator isn't asked twice.
	if _, _, err := r.Register(t.Context(), conversation.Registration{ID: "x", AgentServer: c.URL, Source: conversation.SourceAdmin}); err != nil {
		t.Error(err)
	}
	if got := r.at("x"); got != "boxes "+c.URL {
		t.Errorf("the operator's x is at %q", got)
	}
}

// settled returns when a claim that was made is judged.
func (r *rig) settled(id conversation.ID, by *sandbox) {
	r.t.Helper()
	r.mu.RLock()
	at := r.claims[id]
	r.mu.RUnlock()
	if time.Since(at) > claimPause {
		r.t.Errorf("nobody asks where %s is", id)
	}
	r.settle(r.t.Context(), id, conversation.Instance{AgentServer: "boxes", URL: by.URL})
}

// TestReload takes a pattern away and brings it back.
func TestReload(t *testing.T) {
	s := newSandbox(t, "")
	r := newRig(t, stateFile(t), agentConfig("http://agents.internal:8000"), nil)
	r.seen("x", s.URL, "key-1")
	r.wantKey("boxes "+s.URL, "key-1")
	r.seen("y", "one", "key-2")
	r.wantKey("one", "key-2")
	r.idle()
	without := agentConfig("http://agents.internal:8000")
	without.AgentServers = without.AgentServers[:1]
	if err := r.Configure(t.Context(), without); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"one"}, r.discoverer.names()); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	if key, _ := r.reconciler.key(t, "one"); key != "key-2" {
		t.Errorf("the key is %q after a reload", key)
	}
	if err := r.Configure(t.Context(), agentConfig("http://agents.internal:8000")); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"boxes " + s.URL, "one"}, r.discoverer.names()); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	other := agentConfig("http://agents.internal:8000")
	other.AgentServers[0].Discover = false
	if err := r.Configure(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"boxes " + s.URL}, r.discoverer.names()); diff != "" {
		t.Errorf("targets without discovery (-want +got):\n%s", diff)
	}
}

func TestSweep(t *testing.T) {
	s, unused := newSandbox(t, ""), newSandbox(t, "")
	keys := keyring(t)
	r := newRig(t, stateFile(t), agentConfig("http://agents.internal:8000"), keys)
	r.seen("x", s.URL, "key-1")
	r.seen("", unused.URL, "key-2")
	r.wantKey("boxes "+s.URL, "key-1")
	r.wantKey("boxes "+unused.URL, "key-2")
	r.idle()
	at := conversation.Instance{AgentServer: "boxes", URL: unused.URL}
	if got := r.Keep.load(t.Context(), r.Logger, at); got != "key-2" {
		t.Errorf("stored is %q", got)
	}
	r.sweep(t.Context())
	if len(r.discoverer.names()) != 3 {
		t.Error("one is forgotten at once")
	}
	for _, ag := range r.known {
		ag.seen.Store(time.Now().Add(-2 * keptUnused).Unix())
	}
	r.sweep(t.Context())
	if diff := cmp.Diff([]string{"boxes " + s.URL, "one"}, r.discoverer.names()); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	if _, known := r.reconciler.key(t, at.Name()); known {
		t.Error("the one that is forgotten is still called")
	}
	if got := r.Keep.load(t.Context(), r.Logger, at); got != "" {
		t.Error("its key is still stored")
	}
	// A conversation that came from elsewhere brings its agent server.
	if _, _, err := r.registry.Register(t.Context(), conversation.Registration{
		ID: "y", AgentServer: "boxes", AgentURL: unused.URL, Source: conversation.SourceDiscovery,
	}); err != nil {
		t.Fatal(err)
	}
	r.sweep(t.Context())
	if _, known := r.reconciler.key(t, at.Name()); !known {
		t.Error("it isn't known again")
	}
}
