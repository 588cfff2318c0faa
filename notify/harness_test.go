package notify

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// memoryStore is a conversation.Store without a disk.
type memoryStore struct {
	mu          sync.Mutex
	records     map[conversation.ID]conversation.Conversation
	generations map[string]conversation.Generation
}

var _ conversation.Store = (*memoryStore)(nil)

func newMemoryStore() *memoryStore {
	return &memoryStore{records: map[conversation.ID]conversation.Conversation{}, generations: map[string]conversation.Generation{}}
}

func (s *memoryStore) Get(_ context.Context, id conversation.ID) (conversation.Conversation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c, ok := s.records[id]; ok {
		return c.Clone(), nil
	}

	return conversation.Conversation{}, conversation.ErrNotFound
}

func (s *memoryStore) All(context.Context) iter.Seq2[conversation.Conversation, error] {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := slices.SortedFunc(maps.Values(s.records), func(a, b conversation.Conversation) int { return cmp.Compare(a.ID, b.ID) })

	return func(yield func(conversation.Conversation, error) bool) {
		for _, c := range all {
			if !yield(c.Clone(), nil) {
				return
			}
		}
	}
}

func (s *memoryStore) Put(_ context.Context, c conversation.Conversation) (conversation.Conversation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[c.ID].Revision != c.Revision {
		return conversation.Conversation{}, conversation.ErrConflict
	}
	c = c.Clone()
	c.Revision++
	s.records[c.ID] = c

	return c.Clone(), nil
}

func (s *memoryStore) Touch(context.Context, []conversation.Touch) error { return nil }

func (s *memoryStore) Delete(_ context.Context, id conversation.ID, _ uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.records, id)

	return nil
}

func (s *memoryStore) Generation(_ context.Context, server string) (conversation.Generation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if g, ok := s.generations[server]; ok {
		return g, nil
	}

	return conversation.Generation{}, conversation.ErrNotFound
}

func (s *memoryStore) PutGeneration(_ context.Context, g conversation.Generation) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generations[g.Server] = g

	return nil
}

func (s *memoryStore) Blob(context.Context, string, string) ([]byte, error) {
	return nil, conversation.ErrNotFound
}

func (s *memoryStore) PutBlob(context.Context, string, string, []byte, time.Duration) error {
	return nil
}
func (s *memoryStore) DeleteBlob(context.Context, string, string) error { return nil }
func (s *memoryStore) Close() error                                     { return nil }

// refreshFunc is an agent server's answer to one call.
type refreshFunc func(ctx context.Context, c call) error

// fakeClient is a refresher that counts and never lets two calls of one
// conversation overlap unnoticed.
type fakeClient struct {
	t      testing.TB
	answer refreshFunc

	mu      sync.Mutex
	calls   []fakeCall
	running map[conversation.ID]bool
	peak    int
	closed  bool
}

type fakeCall struct {
	id conversation.ID
	at time.Time
}

func (f *fakeClient) refresh(ctx context.Context, c call) error {
	f.mu.Lock()
	if f.running[c.id] {
		f.t.Errorf("two calls at once for %s", c.id)
	}
	f.running[c.id] = true
	f.peak = max(f.peak, len(f.running))
	f.calls = append(f.calls, fakeCall{c.id, time.Now()})
	answer := f.answer
	f.mu.Unlock()
	defer func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.running, c.id)
	}()

	return answer(ctx, c)
}

func (f *fakeClient) close() { f.closed = true }

func (f *fakeClient) set(answer refreshFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answer = answer
}

// count returns how many calls there were.
func (f *fakeClient) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()

	return len(f.calls)
}

// gaps returns the times between the calls.
func (f *fakeClient) gaps() []time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	var gaps []time.Duration
	for i := 1; i < len(f.calls); i++ {
		gaps = append(gaps, f.calls[i].at.Sub(f.calls[i-1].at))
	}

	return gaps
}

func ok(context.Context, call) error { return nil }

func failing(r Reason, status int) refreshFunc {
	return func(context.Context, call) error {
		return &Error{Reason: r, Status: status, Err: fmt.Errorf("the agent server: %s", r)}
	}
}

func taking(d time.Duration, then refreshFunc) refreshFunc {
	return func(ctx context.Context, c call) error {
		select {
		case <-ctx.Done():
			return interrupted(ctx)
		case <-time.After(d):
			return then(ctx, c)
		}
	}
}

// logLines is an io.Writer that remembers.
type logLines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.Write(p)
}

func (l *logLines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.b.String()
}

func (l *logLines) forget() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b.Reset()
}

// harness is a reconciler on a real registry, with fake agent servers.
type harness struct {
	t        testing.TB
	registry *conversation.Registry
	clients  map[string]*fakeClient
	metrics  *Metrics
	gatherer *prometheus.Registry
	logs     *logLines
	cfg      Config
	deps     Deps
	servers  []AgentServer
	r        *Reconciler

	mu       sync.Mutex
	notReady map[string]bool
	events   []Event
	seq      int
}

// newHarness returns one for the given agent servers, and the MCP servers "default" and
// "other". Call run to start it.
func newHarness(tb testing.TB, agentServers ...string) *harness {
	tb.Helper()
	h := &harness{
		t: tb, clients: map[string]*fakeClient{}, logs: &logLines{}, cfg: DefaultConfig(),
		gatherer: prometheus.NewPedanticRegistry(), notReady: map[string]bool{},
	}
	h.metrics = NewMetrics(h.gatherer)
	settings := map[string]conversation.AgentServerSettings{}
	for _, name := range agentServers {
		settings[name] = conversation.AgentServerSettings{IdleAfter: time.Hour}
		h.clients[name] = &fakeClient{t: tb, answer: ok, running: map[conversation.ID]bool{}}
		h.servers = append(h.servers, DefaultAgentServer(name, &url.URL{Scheme: "http", Host: name + ".test"}))
	}
	rc := conversation.DefaultRegistryConfig()
	rc.Servers, rc.AgentServers = []string{"default", "other"}, settings
	var err error
	if h.registry, err = conversation.NewRegistry(rc, conversation.RegistryDeps{Store: newMemoryStore()}); err != nil {
		tb.Fatal(err)
	}
	if err := h.registry.Load(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	h.deps = Deps{
		Registry: h.registry, Metrics: h.metrics,
		Logger: slog.New(slog.NewTextHandler(h.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Ready: func(s string) bool {
			h.mu.Lock()
			defer h.mu.Unlock()

			return !h.notReady[s]
		},
		OnEvent: func(e Event) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.events = append(h.events, e)
		},
	}

	return h
}

// run starts the reconciler with the fake agent servers; the returned function
// stops it and waits.
func (h *harness) run() (stop func()) {
	h.t.Helper()

	return h.runWith(func(s AgentServer, _ *clientMetrics) refresher { return h.clients[s.Name] })
}

func (h *harness) runWith(dial dialer) (stop func()) {
	h.t.Helper()
	r, err := newReconciler(h.cfg, h.servers, h.deps, dial)
	if err != nil {
		h.t.Fatal(err)
	}
	h.r = r
	ctx, cancel := context.WithCancel(h.t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := r.Run(ctx); err != nil {
			h.t.Error(err)
		}
	}()

	return sync.OnceFunc(func() {
		cancel()
		<-done
	})
}

// add registers conversations of server "default" and returns their ids.
func (h *harness) add(agentServer string, n int, servers ...string) []conversation.ID {
	h.t.Helper()
	if len(servers) == 0 {
		servers = []string{"default"}
	}
	var ids []conversation.ID
	for range n {
		h.seq++
		id := conversation.ID(fmt.Sprintf("%s-%d", agentServer, h.seq))
		if _, _, err := h.registry.Register(h.t.Context(), conversation.Registration{
			ID: id, AgentServer: agentServer, Servers: servers, Source: conversation.SourceAdmin,
		}); err != nil {
			h.t.Fatal(err)
		}
		ids = append(ids, id)
	}

	return ids
}

// settle makes a server offer something new.
func (h *harness) settle(server string) {
	h.t.Helper()
	h.mu.Lock()
	h.seq++
	hash := fmt.Sprintf("sha256:%d", h.seq)
	h.mu.Unlock()
	if _, _, err := h.registry.Settle(h.t.Context(), server, hash, nil, time.Now()); err != nil {
		h.t.Fatal(err)
	}
}

func (h *harness) setReady(server string, ready bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.notReady[server] = !ready
}

func (h *harness) get(id conversation.ID) conversation.View {
	h.t.Helper()
	v, err := h.registry.Get(id)
	if err != nil {
		h.t.Fatalf("%s: %v", id, err)
	}

	return v
}

// states counts the conversations by state.
func (h *harness) states(ids []conversation.ID) map[conversation.State]int {
	n := map[conversation.State]int{}
	for _, id := range ids {
		if v, err := h.registry.Get(id); err != nil {
			n["removed"]++
		} else {
			n[v.State]++
		}
	}

	return n
}

// result returns how many refreshes of agent server "a" ended so.
func (h *harness) result(r Result) float64 {
	return testutil.ToFloat64(h.metrics.refreshes.WithLabelValues("a", string(r)))
}

func (h *harness) failures(agentServer string, r Reason) float64 {
	return testutil.ToFloat64(h.metrics.failed.WithLabelValues(agentServer, string(r)))
}

// forget drops the log and the events so far.
func (h *harness) forget() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = nil
	h.logs.forget()
}

// converging returns the sum of all times of convergence, in seconds.
func (h *harness) converging() float64 {
	h.t.Helper()
	families, err := h.gatherer.Gather()
	if err != nil {
		h.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != "mcp_sidecar_refresh_convergence_seconds" {
			continue
		}
		for _, m := range f.GetMetric() {
			sum += m.GetHistogram().GetSampleSum()
		}
	}

	return sum
}

func (h *harness) eventTypes() []EventType {
	h.mu.Lock()
	defer h.mu.Unlock()
	var types []EventType
	for _, e := range h.events {
		types = append(types, e.Type)
	}

	return types
}

// after lets virtual time pass and everything come to rest.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
