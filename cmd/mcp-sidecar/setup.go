package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/tracing"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/boltstore"
	"github.com/mcp-sidecar/mcp-sidecar/metrics"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
)

// Where a generated session key is kept in the store.
const (
	keyBucket = "keys"
	keyName   = "session"
)

// setUp makes all parts and starts them. What is started first ends last: the
// ops listener outlives everything that it tells about, and agents are served
// only when all else is there.
func (a *app) setUp(ctx context.Context) error {
	cfg := a.cfg.Load()
	a.reg = metrics.NewRegistry(a.build)
	a.metrics = newAppMetrics(a.reg, func() bool { return a.quiescing.Load() || a.stopping.Load() })
	a.metrics.loaded(nil)

	if err := a.trace(ctx); err != nil {
		return err
	}
	bound, err := a.bind(ctx, cfg)
	if err != nil {
		return err
	}
	a.serve(ctx, bound.ops, metrics.Ops{Live: a.live, Ready: a.ready, Started: a.hasStarted}.Handler(a.reg), nil)
	a.stored = conversation.NewMetrics(a.reg)
	if err := a.openStore(ctx, cfg); err != nil {
		return err
	}
	if a.keys, err = a.sessionKeys(ctx, cfg); err != nil {
		return err
	}
	if err := a.makeRegistry(ctx, cfg); err != nil {
		return err
	}
	if err := a.make(ctx, cfg); err != nil {
		return err
	}
	a.spawn(ctx, "memory", collectGarbage)
	a.spawn(ctx, "registry", a.registry.Run)
	if a.replicas != nil {
		a.spawn(ctx, "replicas", a.replicas.Run)
	}
	a.spawn(ctx, "agents", a.agents.Run)
	if err := a.registerConfigured(ctx, cfg); err != nil {
		return err
	}
	a.spawn(ctx, "proxy", a.proxy.Run)
	a.spawn(ctx, "health", a.backends.Run)
	a.endRefreshes = a.spawn(ctx, "notify", a.notifier.Run)
	a.spawn(ctx, "discovery", a.discoverer.Run)
	if a.load != nil && len(a.watchedFiles()) > 0 {
		a.spawn(ctx, "files", a.watchFiles)
	}
	a.serveAdmin(ctx, bound)
	return a.serveAgents(ctx, cfg, bound)
}

// trace begins to send spans, if the environment wants them.
func (a *app) trace(ctx context.Context) error {
	wanted, err := tracing.Wanted(os.Getenv)
	if err != nil || !wanted {
		return err
	}
	if a.tracing, err = tracing.New(ctx, a.build.Version, os.Getenv, a.log); err != nil {
		return err
	}
	a.cleanups.add("tracing", func(ctx context.Context) error {
		// Spans are no reason for a stop to fail, or to take long.
		ctx, cancel := context.WithTimeout(ctx, lastSpansTimeout)
		defer cancel()
		if err := a.tracing.Stop(ctx); err != nil {
			a.log.Warn("spans lost", "err", err)
		}
		return nil
	})
	a.log.Info("sending spans")
	return nil
}

// lastSpansTimeout is for a receiver that is away.
const lastSpansTimeout = 3 * time.Second

func (a *app) openStore(ctx context.Context, cfg *config.Config) error {
	if cfg.Redis != "" {
		return a.openShared(ctx, cfg)
	}
	s, err := boltstore.Open(cfg.State, boltstore.DefaultOptions())
	if err != nil {
		return err
	}
	a.cleanups.add("state", func(context.Context) error { return s.Close() })
	a.store = conversation.Instrument(s, a.stored)
	return nil
}

// sessionKeys reads the key file. Without one, the key of an earlier run is
// taken from the store, or made.
func (a *app) sessionKeys(ctx context.Context, cfg *config.Config) (*proxy.Keyring, error) {
	if cfg.SessionKeyFile != "" {
		keys, err := readSessionKeys(cfg.SessionKeyFile)
		if err != nil {
			return nil, err
		}
		return proxy.NewKeyring(keys...)
	}
	key, err := a.store.Blob(ctx, keyBucket, keyName)
	if errors.Is(err, conversation.ErrNotFound) {
		key = proxy.NewKey()
		err = a.store.PutBlob(ctx, keyBucket, keyName, key, 0)
	}
	if err != nil {
		return nil, fmt.Errorf("keeping a session key in the state: %w", err)
	}
	return proxy.NewKeyring(key)
}

func readSessionKeys(file string) ([][]byte, error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("reading the session keys: %w", err)
	}
	keys, err := proxy.ParseKeys(b)
	if err != nil {
		return nil, fmt.Errorf("reading the session keys in %s: %w", file, err)
	}
	if _, err := proxy.NewKeyring(keys...); err != nil {
		return nil, fmt.Errorf("reading the session keys in %s: %w", file, err)
	}
	return keys, nil
}

// makeRegistry makes the registry and lets it read what the store has.
func (a *app) makeRegistry(ctx context.Context, cfg *config.Config) error {
	d := conversation.RegistryDeps{Store: a.store, Logger: a.log, Metrics: a.stored}
	if a.replicas != nil {
		d.Shared, d.OnGeneration = a.replicas.store, a.replicas.signal
	}
	var err error
	a.registry, err = conversation.NewRegistry(registryConfig(cfg), d)
	if err != nil {
		return err
	}
	switch err := a.registry.Load(ctx); {
	case err != nil && a.replicas != nil && errors.Is(err, conversation.ErrUnavailable):
		a.log.Warn("starting without the shared store: conversations are read when it is there", "err", err)
	case err != nil:
		return fmt.Errorf("reading the state: %w", err)
	}
	return nil
}

// make makes the other parts that do the work. None of them begins with it.
func (a *app) make(ctx context.Context, cfg *config.Config) error {
	a.backends = newBackends(a)
	first, err := a.backends.plan(cfg.Servers)
	if err != nil {
		return err
	}
	var peers proxy.Peers
	if a.replicas != nil {
		peers = a.replicas.store
	}
	if err := a.makeAgents(ctx, cfg); err != nil {
		return err
	}
	tokens, err := readTokens(cfg.ListenTokenFile)
	if err != nil {
		return err
	}
	a.listenTokens.log = a.log
	a.listenTokens.use(cfg.ListenTokenFile, tokens)
	a.proxy, err = proxy.New(proxyConfig(cfg, first, a.addr("agents")), proxy.Deps{
		Logger: a.log, Metrics: proxy.NewMetrics(a.reg), Keys: a.keys, Blobs: a.store, Conversations: a.conversations(),
		Peers: peers, Suspect: a.backends.suspect, CheckToken: a.listenTokens.check,
		Trace: a.tracing.Request(),
	})
	if err != nil {
		return err
	}
	a.backends.proxy, a.backends.wake, a.backends.discover = a.proxy, a.notifier.Wake, a.discoverer.Wake
	a.replicas.connect(a)
	a.backends.publish(first)
	return nil
}

// registerConfigured registers the conversations of the configuration, and
// forgets those that an earlier one had.
func (a *app) registerConfigured(ctx context.Context, cfg *config.Config) error {
	want := map[conversation.ID]bool{}
	for _, c := range cfg.Conversations {
		id, err := conversation.ParseID(c.ID)
		if err != nil {
			return err
		}
		want[id] = true
		_, _, err = a.agents.Register(ctx, conversation.Registration{
			ID: id, AgentServer: c.AgentServer, Servers: c.Servers, Source: conversation.SourceConfig,
		})
		if err != nil {
			return fmt.Errorf("registering conversation %s: %w", id, err)
		}
	}
	q := conversation.Query{Source: conversation.SourceConfig, Limit: 1000}
	for {
		page, err := a.registry.List(q)
		if err != nil {
			return fmt.Errorf("listing conversations: %w", err)
		}
		for _, v := range page.Items {
			if want[v.ID] {
				continue
			}
			if err := a.registry.Remove(ctx, v.ID); err != nil && !errors.Is(err, conversation.ErrNotFound) {
				return fmt.Errorf("removing conversation %s: %w", v.ID, err)
			}
		}
		if page.Next == "" {
			return nil
		}
		q.Cursor = page.Next
	}
}
