package conversation

import (
	"maps"
	"time"
)

// Applied is what a conversation is known to have of one server. The zero value means that nothing is known.
type Applied struct {
	Generation uint64    `json:"generation,omitzero"`
	Hash       string    `json:"hash,omitzero"`
	How        How       `json:"how,omitzero"`
	At         time.Time `json:"at,omitzero"`
}

// Failure is why the last refresh attempt failed. Message is shown to people: no secrets in it.
type Failure struct {
	Reason  string    `json:"reason"`
	Message string    `json:"message,omitzero"`
	At      time.Time `json:"at,omitzero"`
}

// Conversation is one registered conversation, as it is stored.
type Conversation struct {
	ID          ID     `json:"id"`
	AgentServer string `json:"agentServer"`
	AgentURL    string `json:"agentUrl,omitzero"` // which one, where AgentServer stands for several
	Source      Source `json:"source,omitzero"`

	// Servers has an entry for each server that the conversation uses; the zero Applied where nothing is known.
	Servers map[string]Applied `json:"servers,omitzero"`
	// Tried has the generation that the last failed attempt was for, by server. RefreshFailed keeps it.
	Tried map[string]uint64 `json:"tried,omitzero"`

	CreatedAt    time.Time     `json:"createdAt,omitzero"`    // at its agent server; zero when unknown
	RegisteredAt time.Time     `json:"registeredAt,omitzero"` // here, first
	RenewedAt    time.Time     `json:"renewedAt,omitzero"`    // here, last; written with a delay
	LastActive   time.Time     `json:"lastActive,omitzero"`   // last sign of activity, zero when none can be seen; written with a delay
	TTL          time.Duration `json:"ttl,omitzero"`          // life without a sign of life, in nanoseconds; 0 is the default of its source

	Condition   Condition `json:"condition,omitzero"`
	Attempts    int       `json:"attempts,omitzero"` // failed ones since the last success
	LastError   *Failure  `json:"lastError,omitzero"`
	NextAttempt time.Time `json:"nextAttempt,omitzero"` // with a Condition: not before; zero is "not until something changes"

	Forced   bool      `json:"forced,omitzero"`   // refresh whatever the state
	ForcedAt time.Time `json:"forcedAt,omitzero"` // when that was asked for

	Revision uint64 `json:"revision"` // moved on by the Store at each Put; 0 is not stored yet
}

// Clone returns a deep copy.
func (c *Conversation) Clone() Conversation {
	clone := *c
	clone.Servers = maps.Clone(c.Servers)
	clone.Tried = maps.Clone(c.Tried)
	clone.LastError = cloneFailure(c.LastError)
	return clone
}

func cloneFailure(f *Failure) *Failure {
	if f == nil {
		return nil
	}
	clone := *f
	return &clone
}

// Refreshed records a successful refresh that began when the conversation looked like began: applied has what is now known, by server.
// What was asked for or lost since then stays, and nothing older replaces something newer. Use it in Registry.Update.
func (c *Conversation) Refreshed(began View, applied map[string]Applied) {
	for server, a := range applied {
		have, ok := c.Servers[server]
		if !ok || have.Generation > a.Generation {
			continue
		}
		if have.How == HowLost && !have.At.Equal(began.Conversation.Servers[server].At) {
			continue // lost while the refresh was running
		}
		c.Servers[server] = a
	}
	if c.Forced && began.Forced && c.ForcedAt.Equal(began.ForcedAt) {
		c.Forced, c.ForcedAt = false, time.Time{}
	}
	c.reset()
}

// RefreshFailed records a failed attempt that began when the conversation looked like began. A zero next means "not until something changes":
// a newer generation of one of its servers, another registration, a forced refresh. Use it in Registry.Update.
func (c *Conversation) RefreshFailed(began View, cond Condition, f Failure, next time.Time) {
	c.Condition, c.LastError, c.NextAttempt = cond, &f, next
	c.Attempts++
	c.Tried = make(map[string]uint64, len(began.Servers))
	for server, s := range began.Servers {
		c.Tried[server] = s.Desired
	}
}

// reset forgets the failed attempts.
func (c *Conversation) reset() {
	c.Condition, c.Attempts, c.LastError, c.NextAttempt, c.Tried = ConditionNone, 0, nil, time.Time{}, nil
}

// Generation is what a server offers, from the moment its tool list had settled.
type Generation struct {
	Server string            `json:"server"`
	Number uint64            `json:"number"` // from 1
	Hash   string            `json:"hash"`
	At     time.Time         `json:"at"`             // when it had settled
	Tools  map[string]string `json:"tools,omitzero"` // digest of each tool, by name
}

// View is a conversation and what follows from its servers' generations. It is a copy: the caller's to keep.
type View struct {
	Conversation
	State      State                 `json:"state"`
	StaleSince time.Time             `json:"staleSince,omitzero"` // zero when current
	ExpiresAt  time.Time             `json:"expiresAt,omitzero"`  // when it is forgotten without a sign of life; zero is never
	Servers    map[string]ServerView `json:"servers,omitzero"`
}

// ServerView is how a conversation stands towards one of its servers.
type ServerView struct {
	Desired     uint64    `json:"desired"` // generation number, 0 while none is known
	DesiredHash string    `json:"desiredHash,omitzero"`
	Applied     uint64    `json:"applied"`
	AppliedHash string    `json:"appliedHash,omitzero"`
	How         How       `json:"how,omitzero"`
	AppliedAt   time.Time `json:"appliedAt,omitzero"`
	Current     bool      `json:"current"` // nothing to do for this server
	Mapped      bool      `json:"mapped"`  // traffic of the conversation was seen for this server since the start
}
