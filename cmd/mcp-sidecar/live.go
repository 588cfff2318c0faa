package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/agents"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/discovery"
	"github.com/mcp-sidecar/mcp-sidecar/health"
	"github.com/mcp-sidecar/mcp-sidecar/metrics"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
)

const (
	// liveTimeout bounds all questions to one server or agent server.
	liveTimeout = 15 * time.Second
	// livePages is how far a live check looks into the list of conversations.
	livePages = 10
)

// liveResult is what a live check found out about a server or an agent server.
type liveResult struct {
	Kind   string `json:"kind"` // server or agent server
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Detail string `json:"detail"` // for people

	AgentServer *liveAgentServer `json:"agentServer,omitempty"`
}

// liveAgentServer is the answer of an agent server in detail.
type liveAgentServer struct {
	Version     string `json:"version,omitempty"`
	Reachable   bool   `json:"reachable"`
	KeyAccepted bool   `json:"keyAccepted"`
	Action      string `json:"action"` // refresh, reconnect or none
	// Conversations is how many it has, as far as was looked; Using how many of them
	// name this sidecar; and Others are MCP URLs that others name, without queries.
	Conversations *int     `json:"conversations,omitempty"`
	Using         *int     `json:"using,omitempty"`
	Others        []string `json:"others,omitempty"`
}

// checkLive asks everything that the configuration names whether it is there and
// lets the sidecar in. Nothing is changed anywhere.
func checkLive(ctx context.Context, cfg *config.Config) []liveResult {
	results := make([]liveResult, len(cfg.Servers)+len(cfg.AgentServers))
	var wg sync.WaitGroup
	ask := func(i int, kind, name string, question func(context.Context, *liveResult) (string, error)) {
		wg.Go(func() {
			ctx, cancel := context.WithTimeoutCause(ctx, liveTimeout, fmt.Errorf("no answer in %s", liveTimeout))
			defer cancel()
			r := &results[i]
			r.Kind, r.Name = kind, name
			detail, err := question(ctx, r)
			r.OK, r.Detail = err == nil, detail
			if err != nil {
				r.Detail = err.Error()
			}
		})
	}
	for i, s := range cfg.Servers {
		ask(i, "server", s.Name, func(ctx context.Context, _ *liveResult) (string, error) { return askServer(ctx, s) })
	}
	for i, a := range cfg.AgentServers {
		ask(len(cfg.Servers)+i, "agent server", a.Name, func(ctx context.Context, r *liveResult) (string, error) {
			return askAgentServer(ctx, cfg, a, r)
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

func askAgentServer(ctx context.Context, cfg *config.Config, a config.AgentServer, r *liveResult) (string, error) {
	if a.IsPattern() {
		return "not asked: its url is a pattern", nil
	}
	s := agents.Callable(a, "", secretFile)
	p, err := notify.Probe(ctx, s)
	found := &liveAgentServer{Version: p.Version, Reachable: p.Reachable, KeyAccepted: p.KeyAccepted, Action: "none"}
	r.AgentServer = found
	switch {
	case err != nil && !p.Reachable:
		return "", fmt.Errorf("not reachable: %w", err)
	case err != nil && !p.KeyAccepted && a.APIKeyFile == "":
		return "", fmt.Errorf("reachable, but wants a key (see apiKeyFile): %w", err)
	case err != nil && !p.KeyAccepted:
		return "", fmt.Errorf("reachable, but doesn't accept the key (see apiKeyFile): %w", err)
	case err != nil:
		return "", err
	}
	told, well := []string{"reachable, key accepted"}, true
	if s.APIKey == nil {
		told[0] = "reachable without a key"
	}
	switch {
	case p.ActionPresent:
		found.Action = "refresh"
		told = append(told, "refresh action present")
	case p.ReconnectPresent:
		found.Action = "reconnect"
		told = append(told, "no refresh action: reconnect_mcp is used instead")
	default:
		well = false
		told = append(told, "no refresh action (see refreshPath): its conversations are only told by list_changed")
	}
	if a.Discover {
		text, ok := lookForOurs(ctx, cfg, s, found)
		told, well = append(told, text), well && ok
	}
	detail := strings.Join(told, ", ")
	if !well {
		return "", errors.New(detail)
	}
	return detail, nil
}

// lookForOurs tells how many of the agent server's conversations name this
// sidecar. None of several isn't well: discovery would never find one.
func lookForOurs(ctx context.Context, cfg *config.Config, s notify.AgentServer, found *liveAgentServer) (text string, ok bool) {
	c, err := notify.NewAgentClient(s)
	if err != nil {
		return err.Error(), false
	}
	defer c.Close()
	limits := discovery.DefaultLimits()
	limits.MaxPages = livePages
	got, err := discovery.Look(ctx, c, newMatcher(cfg, cfg.Listen), limits)
	if err != nil {
		return "but its conversations can't be read: " + err.Error(), false
	}
	found.Conversations, found.Using, found.Others = &got.Conversations, &got.Using, got.Others
	all := count(got.Conversations, "conversation")
	if !got.Complete {
		all = "the last " + all
	}
	switch {
	case got.Conversations == 0:
		return "no conversations yet", true
	case got.Using > 0:
		return fmt.Sprintf("%d of %s use this sidecar", got.Using, all), true
	}
	var ours []string
	for _, u := range publicURLs(cfg, cfg.Listen) {
		ours = append(ours, u.String())
	}
	text = fmt.Sprintf("none of %s uses this sidecar at %s (see --public-url)", all, strings.Join(ours, " or "))
	if len(got.Others) > 0 {
		text += ": they use " + strings.Join(got.Others, ", ")
	}
	return text, false
}
