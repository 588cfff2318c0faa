package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/health"
	"github.com/mcp-sidecar/mcp-sidecar/metrics"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
)

// liveTimeout bounds each question of a live check.
const liveTimeout = 15 * time.Second

// liveResult is what a live check found out about a server or an agent server.
type liveResult struct {
	Kind   string `json:"kind"` // server or agent server
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // for people
}

// checkLive asks everything that the configuration names whether it is there and
// lets the sidecar in. Nothing is changed anywhere.
func checkLive(ctx context.Context, cfg *config.Config) []liveResult {
	results := make([]liveResult, len(cfg.Servers)+len(cfg.AgentServers))
	var wg sync.WaitGroup
	ask := func(i int, kind, name string, question func(context.Context) (string, error)) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, liveTimeout, fmt.Errorf("no answer in %s", liveTimeout))
			defer cancel()
			detail, err := question(ctx)
			results[i] = liveResult{Kind: kind, Name: name, OK: err == nil, Detail: detail}
			if err != nil {
				results[i].Detail = err.Error()
			}
		})
	}
	for i, s := range cfg.Servers {
		ask(i, "server", s.Name, func(ctx context.Context) (string, error) { return askServer(ctx, s) })
	}
	for i, a := range cfg.AgentServers {
		ask(len(cfg.Servers)+i, "agent server", a.Name, func(ctx context.Context) (string, error) {
			return askAgentServer(ctx, cfg, a)
		})
	}
	wg.Wait()
	return results
}

func askServer(ctx context.Context, s config.Server) (string, error) {
	if s.Transport == config.TransportStdio {
		return "not asked: it is started by the sidecar", nil
	}
	o := health.ListOptions{URL: s.Upstream, Transport: s.Transport, IncludeMeta: s.IncludeMeta, ClientVersion: metrics.ReadBuild().Version}
	if s.Probe.HeadersFile != "" {
		o.Headers = headersFile(s.Probe.HeadersFile)
	}
	ts, err := health.List(ctx, o)
	if err != nil {
		return "", err
	}
	return "answers, " + count(len(ts.Tools), "tool"), nil
}

func askAgentServer(ctx context.Context, cfg *config.Config, a config.AgentServer) (string, error) {
	for _, n := range agentServers(cfg) {
		if n.Name != a.Name {
			continue
		}
		r, err := notify.Probe(ctx, n)
		switch {
		case err != nil && !r.Reachable:
			return "", fmt.Errorf("not reachable: %w", err)
		case err != nil && !r.KeyAccepted:
			return "", fmt.Errorf("reachable, but doesn't accept the key (see apiKeyFile): %w", err)
		case err != nil:
			return "", err
		case !r.ActionPresent && r.ReconnectPresent:
			return "reachable, key accepted, no refresh action: reconnect_mcp is used instead", nil
		case !r.ActionPresent:
			return "", errors.New("reachable, key accepted, but it has no refresh action (see refreshPath): its conversations are only told by list_changed")
		}
		return "reachable, key accepted, refresh action present", nil
	}
	return "not asked: its url is a pattern", nil
}
