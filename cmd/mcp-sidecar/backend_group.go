package main

import (
	"github.com/mcp-sidecar/mcp-sidecar/health"
	"github.com/mcp-sidecar/mcp-sidecar/proxy"
)

// What a backend has to do with the other replicas.

// newest is the number of the newest generation, 0 if there is none.
func (b *backend) newest() uint64 {
	g, _ := b.all.registry.Generation(b.name)
	return g.Number
}

// see tells the group what is seen here.
func (b *backend) see() {
	if b.all.group == nil {
		return
	}
	b.mu.Lock()
	e := b.last
	b.mu.Unlock()
	switch {
	case e.State != health.Settled:
		b.all.group.See(b.name, "", true)
	case e.Tools == nil:
		b.all.group.See(b.name, "", false)
	default:
		b.all.group.See(b.name, e.Tools.Hash, true)
	}
}

// adoptable tells whether what has settled here may become the generation: with
// several replicas only what all of them agree on.
func (b *backend) adoptable(e health.Event) bool {
	if b.all.group == nil || e.Tools == nil {
		return true
	}
	if b.hintsOf != e.Tools.Hash {
		b.hints, b.hintsOf = toolHints(e.Tools), e.Tools.Hash
	}
	hash, ok := b.all.group.Agreed(b.name)
	return ok && hash == e.Tools.Hash
}

// offered is the generation that clients get here: none while the group wants
// something else.
func (b *backend) offered(e health.Event) uint64 {
	if b.all.group == nil || e.Tools == nil {
		return b.generation
	}
	g, ok := b.all.registry.Generation(b.name)
	if !ok || g.Hash != e.Tools.Hash {
		return 0
	}
	return g.Number
}

func (b *backend) tellProxy(e health.Event) {
	b.told = b.offered(e)
	s := proxy.BackendState{Phase: phaseOf(e.State), Epoch: b.epoch + e.Epoch, Generation: b.told, Tools: b.hints}
	if b.all.group != nil && b.told == 0 {
		s.Known = b.newest()
	}
	b.all.proxy.SetBackend(b.name, s)
}

// regroup looks again at what is seen here, since the group may want something
// else.
func (b *backend) regroup() {
	b.turn.Lock()
	defer b.turn.Unlock()
	b.mu.Lock()
	e := b.last
	b.mu.Unlock()
	if e.State == health.Settled {
		b.settle(e)
		if b.offered(e) != b.told {
			b.tellProxy(e)
		}
	}
	b.all.wake()
}
