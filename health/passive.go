package health

import (
	"encoding/json"
	"time"
)

// clientHashes is what clients were seen to get, where the probe may not look for itself. What a server lists may depend on
// who asks, so like is only compared with like.
type clientHashes struct {
	byPrincipal map[string]seenHash
	changedAt   time.Time
}

type seenHash struct {
	hash  string
	tools int
	at    time.Time
}

type clientListing struct {
	principal string
	tools     Toolset
}

// maxPrincipals bounds what is remembered. Beyond it newcomers are ignored.
const maxPrincipals = 1024

// Observed tells of a complete listing that a client got through the proxy, from one process. The principal is any name for
// whose credentials it was, such as a fingerprint. It counts only where the backend wants credentials that the probe hasn't
// got, so most calls return at once. The tools are kept and must not be changed.
func (c *Checker) Observed(principal string, tools []json.RawMessage) {
	if !c.opaque.Load() {
		return
	}
	ts, err := HashTools(tools, HashOptions{IncludeMeta: c.cfg.IncludeMeta, MaxTools: c.cfg.MaxTools})
	if err != nil {
		c.log.Debug("a client got a list of tools that can't be hashed", "reason", string(reasonOf(err)))
		return
	}
	ts.ListedAt = time.Now()
	const most = 64
	c.box.put(func(m *mail) {
		if len(m.client) < most {
			m.client = append(m.client, clientListing{principal, ts})
		}
	})
}

// clientListed compares a client's list with what the same principal got before. The first principal whose list differs
// announces the change; when the others list, theirs is the same one.
func (c *Checker) clientListed(l clientListing) {
	if !c.opaque.Load() || !c.up() {
		return
	}
	k := &c.byClient
	now := time.Now()
	before, known := k.byPrincipal[l.principal]
	grace := c.cfg.ShrinkGrace
	if len(l.tools.Tools) == 0 {
		grace = c.cfg.EmptyGrace
	}
	switch {
	case known && len(l.tools.Tools) < before.tools && now.Sub(c.swappedAt) < grace:
		return // a new process may still be registering tools
	case !known && len(k.byPrincipal) >= maxPrincipals:
		return
	case k.byPrincipal == nil:
		k.byPrincipal = map[string]seenHash{}
	}
	k.byPrincipal[l.principal] = seenHash{l.tools.Hash, len(l.tools.Tools), now}

	l.tools.ServerName, l.tools.ServerVersion = c.server.name, c.server.version
	switch {
	case c.last == nil:
		c.accept(l.tools, ChangeSilent)
	case !known:
	case before.hash == l.tools.Hash:
		c.accept(*c.last, "") // known again after a swap, if there was one
	case before.at.After(k.changedAt):
		k.changedAt = now
		c.accept(l.tools, ChangeSilent)
	}
}
