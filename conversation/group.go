package conversation

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// TopicReplica is the topic of the messages by which a replica tells the others that it sees something else than before.
const TopicReplica = "replica"

// GroupConfig is how a replica works with the others.
type GroupConfig struct {
	// Servers are the names of the configured servers.
	Servers []string
	// Lease is how long what a replica says holds without being said again. A replica that died counts for that much longer.
	Lease time.Duration
	// Interval is how often it is said again.
	Interval time.Duration
	// Undecided is how long the others wait for a replica whose backend is away or not settled.
	Undecided time.Duration
	// ClaimTTL bounds how long one replica may refresh a conversation.
	ClaimTTL time.Duration
	// Patience is how long refreshes wait for a store that is away. Then each conversation is refreshed by one replica of those that there
	// were last.
	Patience time.Duration
}

// DefaultGroupConfig returns the defaults, without any server.
func DefaultGroupConfig() GroupConfig {
	return GroupConfig{
		Lease: 10 * time.Second, Interval: 3 * time.Second, Undecided: time.Minute, ClaimTTL: 90 * time.Second, Patience: 30 * time.Second,
	}
}

func (c GroupConfig) validate() error {
	return atLeast(
		bound{"Interval", c.Interval, 1},
		bound{"Lease", c.Lease, c.Interval + 1},
		bound{"Undecided", c.Undecided, 0},
		bound{"ClaimTTL", c.ClaimTTL, 1},
		bound{"Patience", c.Patience, 0},
	)
}

// GroupDeps is what a group works with.
type GroupDeps struct {
	Store   SharedStore      // required
	Logger  *slog.Logger     // nil is silent
	Metrics *Metrics         // nil is unregistered
	Now     func() time.Time // nil is time.Now
	// OnChange is told that what the group agrees on may be something else now. It is called by one goroutine and must not block. Nil is
	// nobody.
	OnChange func()
	// OnLost is told that the store has lost its data. Nil is nobody.
	OnLost func()
}

// Group is one replica's view of all that share a store: who is there and which tools each sees.
//
// What the group wants of a server is what all ready replicas agree on. As long as they don't, because a rollout has replaced some of them,
// nothing is wanted that wasn't before, and refreshes have to wait: what a conversation would list depends on the replica that it comes to.
// Every replica decides that by itself from the same facts. It is safe for concurrent use.
type Group struct {
	cfg     GroupConfig
	store   SharedStore
	log     *slog.Logger
	metrics *Metrics
	now     func() time.Time
	d       GroupDeps
	kick    chan struct{} // something is to be told
	look    chan struct{} // another told something

	mu          sync.Mutex
	servers     []string
	own         Replica
	unsettled   map[string]time.Time // since when, of servers that were to be seen before
	others      []Replica
	incarnation string
	seenAt      time.Time // when the store was last asked with success, else when this replica began
	mixed       map[string]time.Time
}

// NewGroup returns a group of which this replica isn't ready and sees nothing yet.
func NewGroup(cfg GroupConfig, d GroupDeps) (*Group, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("group of replicas: %w", err)
	}
	if d.Store == nil {
		return nil, errors.New("group of replicas: a store is required")
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Metrics == nil {
		d.Metrics = NewMetrics(nil)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	if d.OnChange == nil {
		d.OnChange = func() {}
	}
	if d.OnLost == nil {
		d.OnLost = func() {}
	}
	g := &Group{
		cfg: cfg, store: d.Store, log: d.Logger.With("component", "conversation"), metrics: d.Metrics, now: d.Now, d: d,
		kick: make(chan struct{}, 1), look: make(chan struct{}, 1),
		own: Replica{ID: rand.Text(), Sees: map[string]string{}}, unsettled: map[string]time.Time{}, mixed: map[string]time.Time{},
		seenAt: d.Now(),
	}
	g.SetServers(cfg.Servers)
	return g, nil
}

// ID names this replica, until the process ends.
func (g *Group) ID() string { return g.own.ID }

// SetServers replaces the configured servers.
func (g *Group) SetServers(names []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.servers = slices.Clone(names)
	for name := range g.own.Sees {
		if !slices.Contains(names, name) {
			delete(g.own.Sees, name)
			delete(g.unsettled, name)
		}
	}
	for name := range g.mixed {
		if !slices.Contains(names, name) {
			delete(g.mixed, name)
		}
	}
	signal(g.kick)
}

// SetReady says whether clients come to this replica.
func (g *Group) SetReady(ready bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.own.Ready != ready {
		g.own.Ready = ready
		signal(g.kick)
	}
}

// See says which tools a server offers here: "" when that isn't settled. visible is false where nobody can tell.
func (g *Group) See(server, hash string, visible bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before, had := g.own.Sees[server]
	switch {
	case !visible:
		delete(g.own.Sees, server)
		delete(g.unsettled, server)
	case hash != "":
		g.own.Sees[server] = hash
		delete(g.unsettled, server)
	case g.unsettled[server].IsZero():
		g.own.Sees[server] = ""
		g.unsettled[server] = g.now()
	}
	if after, has := g.own.Sees[server]; has != had || after != before {
		signal(g.kick)
	}
}

// Agreed returns the tool-schema hash that all ready replicas see of a server: "" where none of them can see it. It returns false while they
// don't agree, or nobody knows who is there.
func (g *Group) Agreed(server string) (hash string, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.incarnation == "" && g.now().Sub(g.seenAt) < g.cfg.Patience {
		return "", false
	}
	switch seen := g.seen(server); {
	case len(seen) == 0:
		return "", true
	case len(seen) > 1 || seen[0] == "":
		return "", false
	default:
		return seen[0], true
	}
}

// seen returns the different hashes of a server that ready replicas see, "" included. mu is held.
func (g *Group) seen(server string) []string {
	var all []string
	for _, r := range append(slices.Clip(g.others), g.own) {
		if hash, ok := r.Sees[server]; ok && r.Ready {
			all = append(all, hash)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Run tells the other replicas what this one sees and learns what they see, until ctx ends; then it leaves the group.
func (g *Group) Run(ctx context.Context) error {
	tick := time.NewTicker(g.cfg.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return g.leave(ctx)
		case <-g.kick:
			g.announce(ctx, true)
		case <-g.look:
			g.announce(ctx, false)
		case <-tick.C:
			g.announce(ctx, false)
		}
	}
}

// leaveTimeout bounds saying goodbye, which is a courtesy: a lease ends by itself.
const leaveTimeout = 2 * time.Second

func (g *Group) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveTimeout)
	defer cancel()
	err := g.store.Leave(ctx, g.own.ID)
	if err == nil {
		err = g.store.Tell(ctx, TopicReplica, nil)
	}
	if err != nil && !errors.Is(err, ErrUnavailable) {
		g.log.Debug("leaving the group failed: the others wait for the end of the lease", "err", err)
	}
	return nil
}

// Apply takes note of what others told. It is for SharedStore.Watch.
func (g *Group) Apply(c Change) {
	if c.Missed || c.Message != nil && c.Message.Topic == TopicReplica {
		signal(g.look)
	}
}

// announce renews the lease and looks at the others.
func (g *Group) announce(ctx context.Context, tell bool) {
	g.mu.Lock()
	for server, since := range g.unsettled { // the others waited long enough
		if g.now().Sub(since) >= g.cfg.Undecided {
			delete(g.own.Sees, server)
		}
	}
	own := g.own
	own.Sees = maps.Clone(g.own.Sees)
	g.mu.Unlock()

	all, incarnation, err := g.store.Announce(ctx, own, g.cfg.Lease)
	if err == nil && tell {
		err = g.store.Tell(ctx, TopicReplica, nil)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
		g.log.Warn("telling the other replicas what this one sees failed: they go by what they know until its lease ends", "err", err)
	}
	lost := false
	g.mu.Lock()
	if incarnation != "" {
		lost = g.incarnation != "" && g.incarnation != incarnation
		g.incarnation, g.seenAt = incarnation, g.now()
		g.others = slices.DeleteFunc(all, func(r Replica) bool { return r.ID == own.ID })
	}
	g.measure()
	g.mu.Unlock()
	if lost {
		g.d.OnLost()
	}
	g.d.OnChange()
}

// measure notes how the group stands. mu is held.
func (g *Group) measure() {
	ready := 0
	for _, r := range append(slices.Clip(g.others), g.own) {
		if r.Ready {
			ready++
		}
	}
	g.metrics.replicas.Set(float64(ready))
	for _, server := range g.servers {
		different := slices.DeleteFunc(g.seen(server), func(hash string) bool { return hash == "" })
		since, was := g.mixed[server]
		switch is := len(different) > 1; {
		case is && !was:
			since = g.now()
			g.mixed[server] = since
			g.log.Info("replicas offer different tools: refreshes wait until all ready ones agree", "server", server, "sets", len(different))
		case !is && was:
			delete(g.mixed, server)
			g.log.Info("replicas agree again", "server", server, "duration", g.now().Sub(since))
			since = time.Time{}
		}
		value := 0.0
		if !since.IsZero() {
			value = float64(since.UnixMilli()) / 1000
		}
		g.metrics.mixedSince.WithLabelValues(server).Set(value)
	}
}

// Claim returns whether this replica may refresh a conversation now. While it returns false, another one does, or the store is away and
// nobody can tell.
func (g *Group) Claim(ctx context.Context, id ID) bool {
	ours, err := g.store.Claim(ctx, id, g.own.ID, g.cfg.ClaimTTL)
	if err == nil {
		return ours
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.now().Sub(g.seenAt) >= g.cfg.Patience && g.falls(id)
}

// Unclaim ends a claim.
func (g *Group) Unclaim(ctx context.Context, id ID) {
	if err := g.store.Unclaim(ctx, id, g.own.ID); err != nil && ctx.Err() == nil && !errors.Is(err, ErrUnavailable) {
		g.log.Debug("ending a claim failed: it ends by itself", "err", err)
	}
}

// falls tells whether a conversation falls to this replica where each takes its part. mu is held.
func (g *Group) falls(id ID) bool {
	weight := func(replica string) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(replica + "\x00" + string(id)))
		return h.Sum64()
	}
	own := weight(g.own.ID)
	return !slices.ContainsFunc(g.others, func(r Replica) bool { return r.Ready && weight(r.ID) > own })
}
