package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
)

var _ admin.Control = (*app)(nil)

// Status implements [admin.Control].
func (a *app) Status() admin.Status {
	s := admin.Status{
		Version: a.build.Version, StartedAt: a.created, Quiescing: a.quiescing.Load() || a.stopping.Load(),
		Servers: a.backends.Servers(), AgentServers: []admin.AgentServer{},
	}
	if msg := a.configErr.Load(); msg != nil {
		s.ConfigError = *msg
	}
	if t := a.registry.OldestStale(); !t.IsZero() {
		s.OldestStale = &t
	}
	counts := a.registry.Counts()
	for _, as := range a.cfg.Load().AgentServers {
		byState := map[string]int{}
		for state, n := range counts[as.Name] {
			byState[string(state)] = n
		}
		s.AgentServers = append(s.AgentServers, admin.AgentServer{Name: as.Name, URL: config.Redact(as.URL), Conversations: byState})
	}
	return s
}

// Quiesce implements [admin.Control].
func (a *app) Quiesce(context.Context) error {
	if a.quiescing.Swap(true) {
		return nil
	}
	a.log.Info("quiescing")
	a.replicas.setReady(false)
	a.backends.quiesce()
	a.proxy.Quiesce()
	a.feed.Publish(admin.Event{Type: "quiesce", At: time.Now()})
	return nil
}

// Reload implements [admin.Control].
func (a *app) Reload(ctx context.Context) error {
	a.reloading.Lock()
	defer a.reloading.Unlock()
	err := a.reload(ctx)
	a.metrics.loaded(err)
	result := "ok"
	if err != nil {
		result = "rejected"
		msg := err.Error()
		if old := a.configErr.Swap(&msg); old == nil || *old != msg { // the same mistake is logged once
			a.log.Error("configuration rejected, the last good one stays in force", "err", err)
		}
	} else {
		a.configErr.Store(nil)
	}
	a.feed.Publish(admin.Event{Type: "reload", At: time.Now(), Result: result})
	if bad, ok := errors.AsType[*config.Error](err); ok {
		rejected := &admin.RejectedError{}
		for _, p := range bad.Problems {
			rejected.Problems = append(rejected.Problems, p.String())
		}
		return rejected
	}
	return err
}

// reload puts the configuration in force that is read now. What may fail comes
// first, so that it is taken whole or not at all.
func (a *app) reload(ctx context.Context) error {
	if a.load == nil {
		return errors.New("the configuration can't be reloaded")
	}
	next, err := a.load()
	if err != nil {
		return err
	}
	old := a.cfg.Load()
	if reflect.DeepEqual(old, next) {
		a.log.Info("configuration unchanged")
		return nil
	}
	plan, err := a.backends.plan(next.Servers)
	if err != nil {
		return err
	}
	tokens, err := readTokens(next.ListenTokenFile)
	if err != nil {
		return err
	}
	if err := a.registry.SetConfig(registryConfig(next)); err != nil {
		return err
	}
	if err := a.proxy.Update(proxyConfig(next, plan, a.addr("agents"))); err != nil {
		return errors.Join(err, a.registry.SetConfig(registryConfig(old)))
	}
	a.cfg.Store(next)
	a.replicas.setServers(next.ServerNames())
	a.listenTokens.use(next.ListenTokenFile, tokens)
	if err := a.backends.apply(ctx, plan); err != nil {
		return err
	}
	a.level.Set(next.LogLevel)
	if !reflect.DeepEqual(old.AgentServers, next.AgentServers) {
		if err := a.agents.Configure(ctx, next); err != nil {
			return err
		}
	}
	if agents := a.addr("agents"); !reflect.DeepEqual(publicURLs(old, agents), publicURLs(next, agents)) || !reflect.DeepEqual(paths(old), paths(next)) {
		a.discoverer.SetMatcher(newMatcher(next, agents))
	}
	if err := a.registerConfigured(ctx, next); err != nil {
		return err
	}
	a.log.Info("configuration reloaded")
	if keys := needRestart(old, next); len(keys) > 0 {
		a.log.Warn("some settings count after a restart only", "keys", keys)
	}
	return nil
}

// needRestart returns the keys of the settings that changed and are read only
// when the sidecar starts.
func needRestart(old, next *config.Config) []string {
	var keys []string
	for key, field := range map[string]func(*config.Config) any{
		"listen":             func(c *config.Config) any { return c.Listen },
		"tlsCertFile":        func(c *config.Config) any { return c.TLSCertFile },
		"tlsKeyFile":         func(c *config.Config) any { return c.TLSKeyFile },
		"opsListen":          func(c *config.Config) any { return c.OpsListen },
		"adminListen":        func(c *config.Config) any { return c.AdminListen },
		"registerListen":     func(c *config.Config) any { return c.RegisterListen },
		"state":              func(c *config.Config) any { return c.State },
		"redis":              func(c *config.Config) any { return c.Redis },
		"redisPasswordFile":  func(c *config.Config) any { return c.RedisPasswordFile },
		"redisCaFile":        func(c *config.Config) any { return c.RedisCAFile },
		"redisPrefix":        func(c *config.Config) any { return c.RedisPrefix },
		"sessionKeyFile":     func(c *config.Config) any { return c.SessionKeyFile },
		"logFormat":          func(c *config.Config) any { return c.LogFormat },
		"refreshConcurrency": func(c *config.Config) any { return c.RefreshConcurrency },
		"discoveryInterval":  func(c *config.Config) any { return c.DiscoveryInterval },
	} {
		if field(old) != field(next) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// publishRefresh passes on what the reconciler does.
func (a *app) publishRefresh(e notify.Event) {
	ev := admin.Event{
		Type: "refresh", At: e.At, Conversation: string(e.Conversation), AgentServer: e.AgentServer,
		Reason: string(e.Reason), How: string(e.How), Attempt: e.Attempt,
	}
	switch e.Type {
	case notify.EventStarted:
		ev.Result = "started"
	case notify.EventSucceeded:
		ev.Result = "success"
	case notify.EventFailed:
		ev.Result = "failed"
	case notify.EventSuperseded:
		ev.Result = "superseded"
	case notify.EventGone:
		ev.Result = "gone"
	default:
		ev.Result = fmt.Sprint(e.Type)
	}
	if len(e.Generations) == 1 {
		for server, g := range e.Generations {
			ev.Server, ev.Generation = server, g
		}
	}
	a.feed.Publish(ev)
}
