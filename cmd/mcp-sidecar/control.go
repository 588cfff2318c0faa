package main

import (
	"context"
	"fmt"
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
	now := time.Now()
	if !a.quiesced.CompareAndSwap(nil, &now) {
		return nil
	}
	a.quiescing.Store(true)
	a.log.Info("quiescing")
	a.replicas.setReady(false)
	a.backends.quiesce()
	a.proxy.Quiesce()
	a.feed.Publish(admin.Event{Type: "quiesce", At: now})
	return nil
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
