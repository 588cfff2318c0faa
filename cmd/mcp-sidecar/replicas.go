package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/redisstore"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
)

// sharedObserveGrace is how long after a refresh another replica may still tell
// that it saw the conversation list its tools.
const sharedObserveGrace = time.Second

// replicas connects this sidecar with the others that share its store. A nil one
// is alone.
type replicas struct {
	store   conversation.SharedStore
	group   *conversation.Group
	changed chan struct{} // what the group wants may be something else now

	mu       sync.Mutex // guards the rest, which is set once
	registry *conversation.Registry
	backends *backends
	proxy    *proxy.Proxy
}

// openShared opens the store of several replicas.
func (a *app) openShared(ctx context.Context, cfg *config.Config) error {
	r := &replicas{changed: make(chan struct{}, 1)}
	o := cfg.RedisOptions()
	o.Logger = a.log
	o.OnUp = func(up bool) {
		a.stored.SetStoreUp(up)
		if registry := r.parts().registry; registry != nil && !up {
			registry.Apply(conversation.Change{Missed: true}) // what others tell from now on isn't heard
		}
	}
	s, err := redisstore.Open(ctx, o)
	if err != nil {
		return err
	}
	a.cleanups.add("store", func(context.Context) error { return s.Close() })
	a.store, r.store = conversation.Instrument(s, a.stored), s
	gc := conversation.DefaultGroupConfig()
	gc.Servers = cfg.ServerNames()
	r.group, err = conversation.NewGroup(gc, conversation.GroupDeps{
		Store: s, Logger: a.log, Metrics: a.stored, OnChange: r.signal,
		OnLost: func() {
			if registry := r.parts().registry; registry != nil {
				registry.Apply(conversation.Change{Missed: true})
			}
		},
	})
	a.replicas = r
	return err
}

// parts are what the replicas' news are for.
type parts struct {
	registry *conversation.Registry
	backends *backends
	proxy    *proxy.Proxy
}

func (r *replicas) parts() parts {
	r.mu.Lock()
	defer r.mu.Unlock()
	return parts{r.registry, r.backends, r.proxy}
}

// connect says what the replicas' news are for, when all of it is there.
func (r *replicas) connect(a *app) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.registry, r.backends, r.proxy = a.registry, a.backends, a.proxy
}

func (r *replicas) signal() {
	select {
	case r.changed <- struct{}{}:
	default:
	}
}

func (r *replicas) setReady(ready bool) {
	if r != nil {
		r.group.SetReady(ready)
	}
}

func (r *replicas) setServers(names []string) {
	if r != nil {
		r.group.SetServers(names)
	}
}

// Run keeps in touch with the other replicas until ctx ends.
func (r *replicas) Run(ctx context.Context) error {
	p := r.parts()
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return r.group.Run(ctx) })
	all.Go(func() error {
		return r.store.Watch(ctx, func(c conversation.Change) {
			p.registry.Apply(c)
			r.group.Apply(c)
			if c.Message != nil {
				p.proxy.Hear(ctx, *c.Message)
			}
		})
	})
	all.Go(func() error {
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-r.changed:
				for _, b := range p.backends.present() {
					b.regroup() //nolint:contextcheck // it bounds itself what it does
				}
			}
		}
	})
	return all.Wait()
}

// Claim implements [notify.Claims].
func (r *replicas) Claim(ctx context.Context, id conversation.ID) bool {
	if !r.group.Claim(ctx, id) {
		return false
	}
	err := r.parts().registry.Reload(ctx, id)
	return err == nil || errors.Is(err, conversation.ErrNotFound) || errors.Is(err, conversation.ErrUnavailable)
}

// Unclaim implements [notify.Claims]. What the others can't know yet stays
// claimed for as long as a claim lasts.
func (r *replicas) Unclaim(ctx context.Context, id conversation.ID) {
	if r.parts().registry.Saved(id) {
		r.group.Unclaim(ctx, id)
	}
}

// agreed tells whether all ready replicas offer what the registry wants of a
// server, so that it doesn't matter which of them a conversation asks. Where none
// of them can see the tools there is nothing to wait for.
func (r *replicas) agreed(server string, registry *conversation.Registry) bool {
	hash, ok := r.group.Agreed(server)
	if !ok || hash == "" {
		return ok
	}
	g, known := registry.Generation(server)
	return known && g.Hash == hash
}

// refreshable tells whether conversations may be refreshed to what the registry
// wants of a server.
func (a *app) refreshable(server string) bool {
	return a.backends.settled(server) && a.replicas.agreed(server, a.registry)
}
