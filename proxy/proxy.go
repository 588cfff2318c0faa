package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// Conversations is told what traffic shows of conversations. Its methods must not
// block.
type Conversations interface {
	// Seen notes a request that names its conversation, its agent server, or both.
	Seen(conversation.Sighting)
	// Listed notes that a conversation listed a server's tools to the last page.
	Listed(conversation.Listing)
	// SessionLost notes that a session of the conversation could not be carried
	// across a swap.
	SessionLost(id conversation.ID, server string)
}

// Deps are what a [Proxy] works with.
type Deps struct {
	// Logger may be nil.
	Logger *slog.Logger
	// Metrics may be nil.
	Metrics *Metrics
	// Keys seal session ids. It is required.
	Keys *Keyring
	// Blobs keep what changes about sessions. Without it a restart re-creates
	// every session.
	Blobs BlobStore
	// Conversations may be nil.
	Conversations Conversations
	// Peers are the replicas that serve the same sessions, with the same keys and
	// blobs. Nil means that there are none.
	Peers Peers
	// Suspect is told when traffic shows that a server's backend may be away or
	// another process. It must not block, and a call of [Proxy.SetBackend] must
	// follow. When it is nil, requests try the backend by themselves.
	Suspect func(server, reason string)
	// Trace is told of each request of a client, and when it has ended. It may set in
	// header, which goes to the backend, what continues the client's trace. Nil: none
	// is traced.
	Trace func(server, method string, began time.Time, header http.Header) (end func(outcome string))
	// CheckToken says whether clients need a bearer token, and whether this one ("" is
	// none) will do. It is asked for every request. Nil: they need none.
	CheckToken func(token string) (wanted, ok bool)
	// Transport carries requests to the backends; nil means HTTP, as
	// [Config.StandardTransport] says.
	Transport Upstream
}

// Proxy serves agents. It is safe for concurrent use.
type Proxy struct {
	logger        *slog.Logger
	metrics       *Metrics
	keys          *Keyring
	blobs         BlobStore
	conversations Conversations
	suspectFunc   func(server, reason string)
	own, standard Upstream // of backends with an address, by Config.StandardTransport
	checkToken    func(token string) (wanted, ok bool)
	trace         func(server, method string, began time.Time, header http.Header) (end func(outcome string))

	current  atomic.Pointer[routes]
	update   sync.Mutex // one Update at a time
	quiet    atomic.Bool
	draining atomic.Bool
	running  running
	tasks    tasks
	peers    *peers // nil when it is alone
	buffers  copyBuffers
	wholes   wholeBuffers
}

// routes are what a configuration makes of a request: replaced as a whole.
type routes struct {
	cfg     Config
	guard   *Guard
	byPath  map[string]*server
	servers map[string]*server
}

// New returns a proxy. It does nothing before it is asked; [Proxy.Run] lets idle
// sessions go.
func New(cfg Config, d Deps) (*Proxy, error) {
	if d.Keys == nil {
		return nil, errors.New("making a proxy: it needs a keyring")
	}

	p := &Proxy{
		logger: d.Logger, metrics: d.Metrics, keys: d.Keys, blobs: d.Blobs,
		conversations: d.Conversations, suspectFunc: d.Suspect, own: d.Transport, standard: d.Transport,
		checkToken: d.CheckToken, trace: d.Trace,
	}

	if p.logger == nil {
		p.logger = slog.New(slog.DiscardHandler)
	}

	p.logger = p.logger.With("component", "proxy")

	if p.metrics == nil {
		p.metrics = NewMetrics(nil)
	}

	if p.blobs == nil {
		p.blobs = newMemoryBlobs()
	}

	if p.conversations == nil {
		p.conversations = noConversations{}
	}

	if d.Transport == nil {
		p.own, p.standard = newPool(), newTransport()
	}

	p.peers = newPeers(p, d.Peers)
	p.current.Store(&routes{})

	if err := p.Update(cfg); err != nil {
		return nil, fmt.Errorf("making a proxy: %w", err)
	}

	return p, nil
}

// Update replaces the configuration while requests run. Servers are matched by
// name: one that stays keeps its sessions, also behind a new address. On error the
// old configuration stays.
func (p *Proxy) Update(cfg Config) error {
	p.update.Lock()
	defer p.update.Unlock()

	if err := cfg.validate(); err != nil {
		return err
	}

	guard, err := NewGuard(GuardConfig{
		Loopback: cfg.LoopbackListener, PublicURLs: cfg.PublicURLs, AllowedOrigins: cfg.AllowedOrigins,
	})
	if err != nil {
		return err
	}

	old := p.current.Load()

	cfg.ConversationHeaders = slices.Clone(cfg.ConversationHeaders)
	for i, name := range cfg.ConversationHeaders {
		cfg.ConversationHeaders[i] = textproto.CanonicalMIMEHeaderKey(name)
	}

	next := &routes{cfg: cfg, guard: guard, byPath: make(map[string]*server), servers: make(map[string]*server)}

	for _, conf := range cfg.Servers {
		if conf.Upstream == nil {
			conf.Upstream = pipedEndpoint()
		}

		s := old.servers[conf.Name]
		if s == nil {
			s = p.newServer(conf)
		}

		before := s.settings.Swap(&conf)
		if moved(before.Upstream, conf.Upstream) { // as if the process had been replaced
			s.suspect("configuration")
			s.swapped()
		}

		if before.Transport != conf.Transport {
			s.endStreams() // they are of the other one
		}

		next.servers[conf.Name] = s
		next.byPath[trimSlash(conf.Path)] = s
	}

	p.current.Store(next)

	for name, s := range old.servers {
		if next.servers[name] == nil {
			s.stop()
		}
	}

	return nil
}

func moved(from, to *url.URL) bool {
	return from.String() != to.String()
}

func (p *Proxy) config() *Config { return &p.current.Load().cfg }

// SetBackend tells what is known of a server's backend. It opens or closes the
// gate for the server's requests, and a new generation is announced to clients.
// Calls for one server must come one at a time, in order. It doesn't block.
func (p *Proxy) SetBackend(name string, state BackendState) {
	s := p.current.Load().servers[name]
	if s == nil {
		return
	}

	if s.gate.set(state) {
		s.upstream().CloseIdle()
		s.swapped()
	}

	if state.Phase == Settled {
		s.known(state.Known)
		s.settled(state.Generation)
	}
}

// Run lets idle sessions go until ctx ends, and then ends what the proxy does in
// the background. It returns nil.
func (p *Proxy) Run(ctx context.Context) error {
	p.sweep(ctx)
	p.tasks.stop()
	p.own.CloseIdle()
	p.standard.CloseIdle()

	return nil
}

// ServerStats are numbers of one server at one moment.
type ServerStats struct {
	Name string
	// Sessions are held in memory, Streams are open, Held requests wait.
	Sessions, Streams, Held int
}

// Stats returns numbers of every server, sorted by name.
func (p *Proxy) Stats() []ServerStats {
	servers := p.current.Load().servers
	stats := make([]ServerStats, 0, len(servers))

	for _, name := range slices.Sorted(maps.Keys(servers)) {
		s := servers[name]
		st := ServerStats{Name: name, Sessions: s.sessions.count(), Held: s.gate.holding()}

		for _, sess := range s.sessions.all() {
			st.Streams += sess.streaming()
		}

		st.Streams += s.subscriptions.count()

		stats = append(stats, st)
	}

	return stats
}

// ServeHTTP serves one request of a client.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	routes := p.current.Load()

	if err := routes.guard.check(r); err != nil {
		refuse(w, http.StatusForbidden, nil, codeInvalid, err.Error())
		return
	}

	if routes.guard.cors(w, r) || !p.admit(routes, w, r) {
		return
	}

	p.running.begin()
	defer p.running.end()

	if p.quiet.Load() && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close") // the next request may go elsewhere
	}

	routes.serve(p, w, r)
}

// noConversations is told, and tells nobody.
type noConversations struct{}

func (noConversations) Seen(conversation.Sighting)          {}
func (noConversations) Listed(conversation.Listing)         {}
func (noConversations) SessionLost(conversation.ID, string) {}
