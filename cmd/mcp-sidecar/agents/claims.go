package agents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/discovery"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
)

const (
	// maxAnswer bounds what is read of an agent server's answer, in bytes.
	maxAnswer = 8 << 20
	// maxKey bounds the length of a key that comes with a request, in bytes.
	maxKey = 4 << 10
)

// Seen notes a request that names a conversation, an agent server, or both. It
// never blocks.
func (a *Agents) Seen(s conversation.Sighting) {
	key := string(s.AgentKey)
	s.AgentKey = ""
	if len(key) > maxKey {
		key = ""
	}
	if s.AgentServer != "" {
		at, err := a.resolve(s.AgentServer)
		if err == nil && !a.note(s.AgentServer, at, key) {
			err = errTooMany
		}
		switch {
		case err != nil:
			a.warn(s.AgentServer, err) // the registry refuses it too, and counts that
		case s.ID == "":
			return
		case a.disputed(s.ID, at):
			a.claim(s.ID, at)
			s.AgentServer, s.AgentURL = "", "" // it lives, wherever it is
		default:
			s.AgentServer, s.AgentURL = at.AgentServer, at.URL
		}
	}
	a.Registry.Seen(s)
}

var errTooMany = errors.New("too many agent servers are known: those that nobody uses are forgotten after an hour")

// note remembers an agent server that a request named so, and looks at the key
// that came with it. False means that there are too many.
func (a *Agents) note(named string, at conversation.Instance, key string) bool {
	a.mu.RLock()
	ag := a.known[at]
	_, spelled := a.spelled[named]
	usual := ag != nil && spelled && (key == "" || key == ag.key || ag.cfg.APIKeyFile != "")
	if ag != nil {
		ag.seen.Store(time.Now().Unix())
	}
	a.mu.RUnlock()
	if usual {
		return true
	}

	a.mu.Lock()
	defer a.mu.Unlock()
	ag = a.known[at]
	if ag == nil {
		if len(a.known)+len(a.meeting) >= maxInstances {
			return false
		}
		if !a.meeting[at] && a.ask(func(ctx context.Context) { a.meet(ctx, at, key) }) {
			a.meeting[at] = true
		}
		return true
	}
	if len(a.spelled) < 2*maxInstances {
		a.spelled[named] = at
	}
	switch {
	case key == "" || key == ag.key || ag.cfg.APIKeyFile != "" || ag.trying:
	case key == ag.triedKey && time.Since(ag.triedAt) < 10*claimPause, time.Since(ag.triedAt) < claimPause:
	case ag.key == "":
		ag.trying = a.ask(func(ctx context.Context) { a.learn(ctx, at, key) })
	default:
		ag.trying = a.ask(func(ctx context.Context) { a.tryKey(ctx, at, key) })
	}
	return true
}

// meet makes an agent server known that is behind a pattern, with the key that
// came with its name.
func (a *Agents) meet(ctx context.Context, at conversation.Instance, key string) {
	a.configuring.Lock()
	known := a.add(ctx, at, key)
	a.configuring.Unlock()
	if known && key != "" {
		a.note(at.URL, at, key) // the stored one may be another
	}
}

// add makes an agent server known, if it isn't, and tells whether it is known
// then. configuring is held.
func (a *Agents) add(ctx context.Context, at conversation.Instance, key string) bool {
	a.mu.Lock()
	delete(a.meeting, at)
	cfg, ag := a.cfg, a.known[at]
	a.mu.Unlock()
	if ag != nil {
		return true
	}
	if !a.allowed(cfg, at) {
		return false
	}
	ag, err := a.newAgent(ctx, cfg, at, nil)
	if err == nil && ag.key == "" && ag.cfg.APIKeyFile == "" && key != "" {
		ag.key, ag.keptAt = key, time.Now()
		a.Keep.store(ctx, a.Logger, at, key)
		err = a.connect(ag)
	}
	if err != nil {
		a.Logger.Warn("agent server can't be called", "agent_server", at.Name(), "err", err)
		return false
	}
	a.mu.Lock()
	a.known[at] = ag
	a.mu.Unlock()
	a.publish(ag)
	a.Logger.Info("agent server met", "agent_server", at.Name())
	return true
}

// publish hands an agent server to the others. configuring is held.
func (a *Agents) publish(ag *agent) {
	if err := a.Reconciler.PutAgentServer(ag.server); err != nil {
		a.Logger.Warn("agent server can't be called", "agent_server", ag.Name(), "err", err)
	}
	a.setTargets()
}

// disputed tells whether a conversation is known to be at another agent server
// behind the same pattern.
func (a *Agents) disputed(id conversation.ID, at conversation.Instance) bool {
	if id == "" || at.URL == "" {
		return false
	}
	have, ok := a.Registry.Where(id)
	return ok && have.AgentServer == at.AgentServer && have.URL != "" && have.URL != at.URL
}

// claim has it found out where a conversation is that somebody says is at another
// agent server.
func (a *Agents) claim(id conversation.ID, at conversation.Instance) {
	now := time.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known[at] == nil || now.Sub(a.claims[id]) < claimPause || len(a.claims) >= maxClaims {
		return // the claim comes again
	}
	if a.ask(func(ctx context.Context) { a.settle(ctx, id, at) }) {
		a.claims[id] = now
	}
}

// settle moves a conversation if its agent server no longer has it and the other
// one does.
func (a *Agents) settle(ctx context.Context, id conversation.ID, to conversation.Instance) {
	from, ok := a.Registry.Where(id)
	if !ok || from == to || a.has(ctx, from, id) || !a.has(ctx, to, id) {
		return
	}
	_, err := a.Registry.Update(ctx, id, func(c *conversation.Conversation) error {
		if c.At() != from {
			return conversation.ErrConflict
		}
		c.Relocate(to.URL)
		return nil
	})
	if err == nil {
		a.Logger.Info("conversation moved to another agent server", "conversation", id, "agent_server", to.Name())
	}
}

// has asks an agent server whether it has a conversation. One that doesn't answer
// doesn't.
func (a *Agents) has(ctx context.Context, at conversation.Instance, id conversation.ID) bool {
	a.mu.RLock()
	ag := a.known[at]
	var c *notify.AgentClient
	if ag != nil {
		c = ag.client
	}
	a.mu.RUnlock()
	if c == nil {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := c.Get(ctx, "api/conversations/"+url.PathEscape(string(id)), nil)
	if err != nil {
		return false
	}
	defer body.Close()
	info, err := discovery.ReadInfo(io.LimitReader(body, maxAnswer))
	return err == nil && info.ID == id && !info.Deleting
}

// Register registers a conversation as [conversation.Registry.Register] does. The
// agent server may be given by its URL.
func (a *Agents) Register(ctx context.Context, reg conversation.Registration) (c conversation.Conversation, created bool, err error) {
	if strings.Contains(reg.AgentServer, "://") {
		named := reg.AgentServer
		at, err := a.resolve(named)
		if err != nil {
			return c, false, &conversation.UnknownNameError{Kind: "agent server", Name: config.Redact(named), Known: a.configured()}
		}
		reg.AgentServer, reg.AgentURL = at.AgentServer, at.URL
	}
	if reg.AgentURL != "" && (reg.By != "" || reg.Source != conversation.SourceAdmin && reg.Source != conversation.SourceConfig) {
		if at := (conversation.Instance{AgentServer: reg.AgentServer, URL: reg.AgentURL}); a.disputed(reg.ID, at) {
			a.claim(reg.ID, at)
		}
	}
	c, created, err = a.Registry.Register(ctx, reg)
	if err == nil && c.AgentURL != "" {
		a.note(c.AgentURL, c.At(), "")
	}
	return c, created, err
}

// Named notes what the agent server by says of itself: its URL, and its key if it
// isn't "". It returns which one that is. The errors are for by to read.
func (a *Agents) Named(by, named, key string) (conversation.Instance, error) {
	if len(key) > maxKey {
		key = ""
	}
	at, err := a.resolve(named)
	switch {
	case err != nil:
		return at, err
	case at.AgentServer != by:
		return at, fmt.Errorf("%w: that is another agent server", conversation.ErrForbidden)
	case !a.note(named, at, key):
		return at, errTooMany
	}
	return at, nil
}

func (a *Agents) configured() []string {
	a.mu.RLock()
	defer a.mu.RUnlock()
	var names []string
	for _, s := range a.cfg.AgentServers {
		names = append(names, s.Name)
	}
	return names
}
