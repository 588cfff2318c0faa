package agents

import (
	"context"
	"errors"
	"net/url"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/notify"
)

// learn takes a key for an agent server.
func (a *Agents) learn(ctx context.Context, at conversation.Instance, key string) {
	a.configuring.Lock()
	defer a.configuring.Unlock()
	a.mu.Lock()
	ag := a.known[at]
	if ag == nil {
		a.mu.Unlock()
		return
	}
	old := ag.client
	ag.trying, ag.key, ag.keptAt = false, key, time.Now()
	err := a.connect(ag)
	a.mu.Unlock()
	if err != nil {
		a.Logger.Warn("agent server can't be called", "agent_server", at.Name(), "err", err)
		return
	}
	a.publish(ag)
	old.Close()
	a.Keep.store(ctx, a.Logger, at, key)
	a.retry(ctx, at)
	a.Logger.Info("key of an agent server learnt", "agent_server", at.Name())
}

// tryKey takes another key for an agent server if that accepts it.
func (a *Agents) tryKey(ctx context.Context, at conversation.Instance, key string) {
	a.mu.RLock()
	ag := a.known[at]
	var s notify.AgentServer
	if ag != nil {
		s = ag.server
	}
	a.mu.RUnlock()
	if ag == nil {
		return
	}
	s.APIKey = fixed(key)
	err := accepts(ctx, s)
	if err == nil {
		a.learn(ctx, at, key)
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if ag := a.known[at]; ag != nil {
		ag.trying, ag.triedAt, ag.triedKey = false, time.Now(), ""
		if notify.ReasonOf(err) == notify.ReasonAuth {
			ag.triedKey = key
		}
	}
}

// accepts asks an agent server something that takes its key.
func accepts(ctx context.Context, s notify.AgentServer) error {
	c, err := notify.NewAgentClient(s)
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	body, err := c.Get(ctx, "api/conversations/search", url.Values{"limit": {"1"}})
	if err != nil {
		return err
	}
	return body.Close()
}

// retry brings forward what waits because the agent server refused the old key.
func (a *Agents) retry(ctx context.Context, at conversation.Instance) {
	q := conversation.Query{AgentServer: at.AgentServer, State: conversation.StateFailed, Limit: 1000}
	for {
		page, err := a.Registry.List(q)
		if err != nil {
			return
		}
		for _, v := range page.Items {
			if v.At() != at || v.LastError == nil || v.LastError.Reason != string(notify.ReasonAuth) {
				continue
			}
			_, err := a.Registry.Update(ctx, v.ID, func(c *conversation.Conversation) error {
				c.NextAttempt = time.Now()
				return nil
			})
			if err != nil && !errors.Is(err, conversation.ErrNotFound) {
				return
			}
		}
		if page.Next == "" {
			return
		}
		q.Cursor = page.Next
	}
}
