package conversation

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Registration asks for a conversation to be known.
type Registration struct {
	ID          ID
	AgentServer string        // "" on a renewal keeps the one it has, else the only configured one, or "default"
	AgentURL    string        // which one, where AgentServer stands for several; ignored elsewhere. A renewal changes it only for the operator
	Servers     []string      // none on a renewal keeps those it has, else every configured one
	Source      Source        // config and admin replace the servers, others add to them
	CreatedAt   time.Time     // when the agent server created it; zero when unknown
	LastActive  time.Time     // its last activity as the agent server tells it; zero when unknown
	TTL         time.Duration // 0 is the default of the source
	By          string        // the agent server whose token is used; "" is the operator
}

// byOperator tells whether the operator said so, so that it prevails over what was found out.
func (s Source) byOperator() bool { return s == SourceConfig || s == SourceAdmin }

// Register registers a conversation or renews its registration; a renewal that changes nothing costs no write. Only the operator can move a
// conversation from one configured agent server to another, and an agent server can only register its own. Errors wrap ErrInvalid,
// ErrForbidden, ErrRemoved, *UnlocatedError or *UnknownNameError.
func (r *Registry) Register(ctx context.Context, reg Registration) (c Conversation, created bool, err error) {
	c, created, err = r.register(ctx, reg)
	switch {
	case err != nil:
		r.metrics.registrations.WithLabelValues(resultRejected).Inc()
	case created:
		r.metrics.registrations.WithLabelValues(resultCreated).Inc()
	default:
		r.metrics.registrations.WithLabelValues(resultRenewed).Inc()
	}
	return c, created, err
}

func (r *Registry) register(ctx context.Context, reg Registration) (c Conversation, created bool, err error) {
	id, err := ParseID(string(reg.ID))
	if err != nil {
		return Conversation{}, false, err
	}
	if err := r.checkRegistration(reg); err != nil {
		return Conversation{}, false, err
	}
	now := r.clock.now()
	if reg.CreatedAt.After(now) {
		reg.CreatedAt = now
	}
	if reg.LastActive.After(now) {
		reg.LastActive = now
	}
	if reg.LastActive.IsZero() && reg.Source == SourceWebhook {
		reg.LastActive = now // it is sent when something happens
	}
	c, err = r.mutate(ctx, id, func(c *Conversation, exists bool) error {
		created = !exists
		agent := reg.AgentServer
		if agent == "" {
			agent = reg.By
		}
		if exists && agent == "" {
			agent = c.AgentServer
		}
		r.mu.Lock()
		to, err := r.configuredAgentServer(agent)
		_, owned := r.cfg.AgentServers[c.AgentServer]
		servers := r.cfg.Servers
		url, urlErr := reg.AgentURL, error(nil)
		operator := reg.By == "" && reg.Source.byOperator()
		if err == nil {
			if to.name == c.AgentServer && c.AgentURL != "" && (url == "" || !operator) {
				url = c.AgentURL
			}
			url, urlErr = to.locate(url)
		}
		gone, removed := r.removed[id]
		r.mu.Unlock()
		switch {
		case err != nil:
			return err
		case exists && to.name != c.AgentServer && owned && !operator:
			return fmt.Errorf("%w: the conversation is registered for another agent server", ErrForbidden)
		case urlErr != nil:
			return urlErr
		case exists:
			r.renew(c, reg, to.name, url)
			return nil
		case removed && reg.Source == SourceDiscovery && r.clock.stamp(now) < gone.until: // what it was found in is older
			return ErrRemoved
		}
		if len(reg.Servers) > 0 {
			servers = reg.Servers
		}
		*c = Conversation{
			AgentServer: to.name, AgentURL: url, Source: reg.Source, TTL: reg.TTL,
			CreatedAt: reg.CreatedAt, RegisteredAt: now, RenewedAt: now, LastActive: reg.LastActive,
			Servers: make(map[string]Applied, len(servers)),
		}
		for _, s := range servers {
			c.Servers[s] = Applied{}
		}
		return nil
	})
	if err != nil {
		return Conversation{}, false, err
	}
	r.alive(id, reg, now)
	return c, created, nil
}

func (r *Registry) checkRegistration(reg Registration) error {
	switch reg.Source {
	case SourceURL, SourceHeader, SourceDiscovery, SourceWebhook, SourceConfig, SourceAdmin:
	default:
		return fmt.Errorf("%w source %.70q of a registration", ErrInvalid, reg.Source)
	}
	if reg.TTL < 0 {
		return fmt.Errorf("%w TTL %v of a registration: it is negative", ErrInvalid, reg.TTL)
	}
	if reg.By != "" && reg.AgentServer != "" && reg.AgentServer != reg.By {
		return fmt.Errorf("%w: agent server %q can only register its own conversations", ErrForbidden, reg.By)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range reg.Servers {
		if _, err := r.configuredServer(s); err != nil {
			return err
		}
	}
	return nil
}

// renew changes what a registration changes of a conversation that is there. Signs of life are not its business.
func (r *Registry) renew(c *Conversation, reg Registration, agent, url string) {
	changed := url != c.AgentURL
	c.AgentURL = url
	if agent != c.AgentServer { // nothing is known of it there
		c.AgentServer, c.CreatedAt, changed = agent, time.Time{}, true
		for s := range c.Servers {
			c.Servers[s] = Applied{}
		}
	}
	if reg.Source.byOperator() {
		c.Source, c.TTL = reg.Source, reg.TTL
	}
	if !reg.CreatedAt.IsZero() && c.CreatedAt.IsZero() {
		c.CreatedAt = reg.CreatedAt
	}
	wanted := make(map[string]struct{}, len(reg.Servers))
	for _, s := range reg.Servers {
		wanted[s] = struct{}{}
		if _, ok := c.Servers[s]; !ok {
			c.Servers[s], changed = Applied{}, true
		}
	}
	if reg.Source.byOperator() && len(wanted) > 0 {
		for s := range c.Servers {
			if _, ok := wanted[s]; !ok {
				delete(c.Servers, s)
				changed = true
			}
		}
	}
	switch {
	case changed:
		c.reset()
	case reg.Source == SourceAdmin && c.Condition != ConditionNone:
		c.NextAttempt = r.clock.now() // somebody wants it to be tried
	}
}

// alive notes the signs of life that come with a registration.
func (r *Registry) alive(id ID, reg Registration, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		return
	}
	at := r.clock.stamp(now)
	active := r.clock.stamp(reg.LastActive)
	if reg.Source == SourceAdmin && reg.LastActive.IsZero() && e.active != 0 {
		active = at
	}
	if active > e.active || e.active == 0 && active != 0 {
		r.wake(e, active, at)
	}
	e.renewed = later(e.renewed, at)
	r.touch(e)
}

// Remove forgets a conversation. Traffic and discovery don't register it again for a while. ErrNotFound if there is none.
func (r *Registry) Remove(ctx context.Context, id ID) error {
	return r.remove(ctx, id, resultRemoved, func(*entry) bool { return true })
}

// remove forgets a conversation of which ok still holds. ok is called with mu held.
func (r *Registry) remove(ctx context.Context, id ID, result string, ok func(*entry) bool) error {
	mu := r.stripe(id)
	mu.Lock()
	defer mu.Unlock()
	pending := false
	if r.shared != nil && result == resultExpired { // another replica may have seen a sign of life
		if err := r.reload(ctx, id); err != nil {
			return err
		}
	}
	for range maxConflicts {
		r.mu.Lock()
		e := r.entries[id]
		if e == nil || !ok(e) {
			r.mu.Unlock()
			return ErrNotFound
		}
		revision := e.revision
		r.mu.Unlock()

		var err error
		if revision != 0 {
			err = r.store.Delete(ctx, id, revision)
			r.noteStore(ctx, err)
		}
		switch {
		case err == nil || errors.Is(err, ErrNotFound):
		case errors.Is(err, ErrConflict):
			if err := r.reload(ctx, id); err != nil {
				return err
			}
			continue
		case ctx.Err() != nil || errors.Is(err, ErrClosed):
			return fmt.Errorf("removing the conversation: %w", err)
		default:
			pending = true
		}

		r.mu.Lock()
		defer r.mu.Unlock()
		r.drop(e)
		r.removed[id] = removal{
			until:    r.clock.stamp(r.clock.now()) + stamp(r.cfg.RemovedGrace),
			pending:  pending,
			revision: revision,
		}
		if pending {
			signal(r.kick)
		}
		r.metrics.registrations.WithLabelValues(result).Inc()
		return nil
	}
	return fmt.Errorf("removing the conversation: %w, again and again", ErrConflict)
}
