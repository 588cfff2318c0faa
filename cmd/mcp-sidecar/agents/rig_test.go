package agents

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/boltstore"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/discovery"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
)

// sandbox is an agent server with a few conversations and a key.
type sandbox struct {
	*httptest.Server

	mu    sync.Mutex
	key   string // "" wants none
	has   []string
	asked int
}

func newSandbox(t *testing.T, key string, has ...string) *sandbox {
	t.Helper()
	s := &sandbox{key: key, has: has}
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	return s
}

func (s *sandbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	status, body := http.StatusNotFound, `{"detail":"Not Found"}`
	id, one := strings.CutPrefix(r.URL.Path, "/api/conversations/")
	switch {
	case s.key != "" && r.Header.Get("X-Session-Api-Key") != s.key:
		status, body = http.StatusUnauthorized, `{"detail":"Unauthorized"}`
	case r.URL.Path == "/api/conversations/search":
		status, body = http.StatusOK, `{"items":[],"next_page_id":null}`
	case one && slices.Contains(s.has, id):
		status, body = http.StatusOK, `{"id":"`+id+`"}`
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(body)) // the client may be gone
}

func (s *sandbox) change(f func(*sandbox)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

// reconciler remembers the agent servers that it was given.
type reconciler struct {
	mu      sync.Mutex
	servers map[string]notify.AgentServer
}

func (r *reconciler) SetAgentServers(servers []notify.AgentServer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers = map[string]notify.AgentServer{}
	for _, s := range servers {
		r.servers[s.Name] = s
	}
	return nil
}

func (r *reconciler) PutAgentServer(s notify.AgentServer) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.servers[s.Name] = s
	return nil
}

func (r *reconciler) DropAgentServer(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.servers, name)
}

// key returns the key that an agent server is called with.
func (r *reconciler) key(t *testing.T, name string) (key string, known bool) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.servers[name]
	if !ok || s.APIKey == nil {
		return "", ok
	}
	key, err := s.APIKey()
	if err != nil {
		t.Error(err)
	}
	return key, true
}

// discoverer remembers what it is to look at.
type discoverer struct {
	mu      sync.Mutex
	targets []discovery.Target
}

func (d *discoverer) SetTargets(targets []discovery.Target) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.targets = targets
}

func (d *discoverer) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var names []string
	for _, t := range d.targets {
		names = append(names, t.Name())
	}
	slices.Sort(names)
	return names
}

// lockedBuffer is a log that can be read while it is written.
type lockedBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// rig is an Agents that runs, on a real registry and store. The agent servers are
// "one", at the given URL, and "boxes", which stands for all at 127.0.0.1.
type rig struct {
	*Agents

	t          *testing.T
	cfg        *config.Config
	file       string
	store      *boltstore.Store
	registry   *conversation.Registry
	reconciler *reconciler
	discoverer *discoverer
	logs       *lockedBuffer
	own        []netip.AddrPort
	stop       func()
}

func agentConfig(one string) *config.Config {
	c := config.Default()
	c.Servers = []config.Server{{Name: "default", Path: "/mcp"}}
	c.AgentServers = []config.AgentServer{
		{Name: "one", URL: one, Concurrency: 4, Discover: true},
		{Name: "boxes", URL: "http://127.0.0.1:*", Concurrency: 4, Discover: true},
	}
	return &c
}

// newRig returns a rig whose store is the file; keys seals keys in it, if there
// are any.
func newRig(t *testing.T, file string, cfg *config.Config, keys *proxy.Keyring) *rig {
	t.Helper()
	r := &rig{t: t, cfg: cfg, file: file, reconciler: &reconciler{}, discoverer: &discoverer{}, logs: &lockedBuffer{}}
	o := boltstore.DefaultOptions()
	o.NoSync = true
	var err error
	if r.store, err = boltstore.Open(file, o); err != nil {
		t.Fatal(err)
	}
	rc := conversation.DefaultRegistryConfig()
	rc.Servers = []string{"default"}
	rc.AgentServers = map[string]conversation.AgentServerSettings{}
	for _, a := range cfg.AgentServers {
		rc.AgentServers[a.Name] = conversation.AgentServerSettings{IdleAfter: time.Hour, Pattern: a.IsPattern()}
	}
	if r.registry, err = conversation.NewRegistry(rc, conversation.RegistryDeps{Store: r.store}); err != nil {
		t.Fatal(err)
	}
	if err := r.registry.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	d := Deps{
		Logger:   slog.New(slog.NewJSONHandler(r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Registry: r.registry, Reconciler: r.reconciler, Discoverer: r.discoverer,
		ReadKey: func(file string) func() (string, error) {
			return func() (string, error) {
				b, err := os.ReadFile(file)
				return string(b), err
			}
		},
		Own: func() []netip.AddrPort { return r.own },
	}
	if keys != nil {
		d.Keep = &Keeper{Blobs: r.store, Sealer: keys, TTL: time.Hour}
	}
	r.Agents = New(d)
	if err := r.Configure(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	go func() { done <- r.Run(ctx) }()
	go func() { done <- r.registry.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		for _, ag := range r.known {
			ag.client.Close()
		}
		if err := r.store.Close(); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

func stateFile(t *testing.T) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "state.db")
}

func keyring(t *testing.T) *proxy.Keyring {
	t.Helper()
	k, err := proxy.NewKeyring(proxy.NewKey())
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// seen reports a request.
func (r *rig) seen(id conversation.ID, agent, key string) {
	r.Seen(conversation.Sighting{
		ID: id, AgentServer: agent, AgentKey: conversation.Key(key), Server: "default", Source: conversation.SourceHeader,
	})
}

func (r *rig) at(id conversation.ID) string {
	at, _ := r.registry.Where(id)
	return at.Name()
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(20 * time.Second)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not in 20 s: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// wantKey waits until an agent server is called with a key.
func (r *rig) wantKey(name, want string) {
	r.t.Helper()
	eventually(r.t, name+" has the right key", func() bool {
		key, known := r.reconciler.key(r.t, name)
		return known && key == want
	})
}

// idle waits until all questions were asked and no key is being tried.
func (r *rig) idle() {
	r.t.Helper()
	done := make(chan struct{})
	if !r.ask(func(context.Context) { close(done) }) {
		r.t.Fatal("too many questions")
	}
	<-done
	eventually(r.t, "no key is tried, nobody is met", func() bool {
		r.mu.RLock()
		defer r.mu.RUnlock()
		for _, ag := range r.known {
			if ag.trying {
				return false
			}
		}
		return len(r.meeting) == 0
	})
}

// wantSilence fails where one of the secrets stands in logs, in the store or in
// what is told of conversations.
func (r *rig) wantSilence(secrets ...string) {
	r.t.Helper()
	page, err := r.registry.List(conversation.Query{})
	if err != nil {
		r.t.Fatal(err)
	}
	told, err := json.Marshal(page)
	if err != nil {
		r.t.Fatal(err)
	}
	stored, err := os.ReadFile(r.file)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, s := range secrets {
		if strings.Contains(r.logs.String(), s) || bytes.Contains(stored, []byte(s)) || bytes.Contains(told, []byte(s)) {
			r.t.Errorf("%q is told or stored", s)
		}
	}
}

func mustParse(t *testing.T, s string) *url.URL {
	t.Helper()
	u, err := url.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// revive starts a sandbox again at its old address.
func revive(t *testing.T, s *sandbox, addr string) {
	t.Helper()
	var l net.Listener
	eventually(t, "the address is free", func() bool {
		var err error
		l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", addr)
		return err == nil
	})
	s.Server = httptest.NewUnstartedServer(s)
	if err := s.Listener.Close(); err != nil {
		t.Error(err)
	}
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
}
