package agents

import (
	"context"
	"strings"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// Run does what claims and keys need, until ctx ends.
func (a *Agents) Run(ctx context.Context) error {
	var questions sync.WaitGroup
	defer questions.Wait()
	places := make(chan struct{}, maxQuestions)
	sweep := time.NewTicker(sweepInterval)
	defer sweep.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			a.sweep(ctx)
		case question := <-a.work:
			select {
			case <-ctx.Done():
				return nil
			case places <- struct{}{}:
			}
			questions.Go(func() {
				defer func() { <-places }()
				question(ctx)
			})
		}
	}
}

// ask has Run do something. It never blocks; false means that it won't be done.
func (a *Agents) ask(question func(context.Context)) bool {
	select {
	case a.work <- question:
		return true
	default:
		return false
	}
}

// sweep forgets agent servers behind patterns that nobody uses, keeps the keys of
// the others in the store, and adds those whose conversations came from there.
func (a *Agents) sweep(ctx context.Context) {
	a.configuring.Lock()
	defer a.configuring.Unlock()
	inUse, now := a.Registry.Instances(), time.Now()
	a.mu.Lock()
	for id, at := range a.claims {
		if now.Sub(at) > claimPause {
			delete(a.claims, id)
		}
	}
	var dropped, kept []*agent
	for at, ag := range a.known {
		switch {
		case at.URL != "" && inUse[at] == 0 && now.Unix()-ag.seen.Load() > int64(keptUnused/time.Second):
			delete(a.known, at)
			dropped = append(dropped, ag)
		case ag.key != "" && a.Keep.due(ag.keptAt):
			ag.keptAt = now
			kept = append(kept, ag)
		}
	}
	if len(dropped) > 0 {
		clear(a.spelled)
	}
	var added []conversation.Instance
	for at := range inUse {
		if a.known[at] == nil {
			added = append(added, at)
		}
	}
	a.mu.Unlock()
	for _, at := range added {
		a.add(ctx, at, "")
	}
	for _, ag := range kept {
		a.Keep.store(ctx, a.Logger, ag.Instance, ag.key)
	}
	if len(dropped) == 0 {
		return
	}
	a.setTargets()
	for _, ag := range dropped {
		a.Reconciler.DropAgentServer(ag.Name())
		ag.client.Close()
		a.Keep.forget(ctx, a.Logger, ag.Instance)
	}
	a.Logger.Debug("agent servers forgotten that nobody uses", "count", len(dropped))
}

// warn logs a refused claim, now and then.
func (a *Agents) warn(named string, err error) {
	a.mu.Lock()
	now := time.Now()
	quiet := now.Sub(a.warnedAt) < warnPause
	if !quiet {
		a.warnedAt = now
	}
	a.mu.Unlock()
	if quiet {
		return
	}
	shown := "a name"
	if strings.Contains(named, "://") {
		shown = config.Redact(named[:min(len(named), 200)])
	}
	a.Logger.Warn("request names an agent server that isn't allowed; such warnings come once a minute at most", "agent_server", shown, "err", err)
}
