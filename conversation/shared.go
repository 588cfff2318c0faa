package conversation

import (
	"context"
	"iter"
	"time"
)

// SharedStore is a Store that several replicas work with at once.
type SharedStore interface {
	Store

	// Watch calls fn with what other replicas write and tell, until ctx ends, and returns nil then. fn is called by one goroutine. Changes can
	// get lost: whenever that may have happened, and at the beginning, comes a Change that says so.
	Watch(ctx context.Context, fn func(Change)) error
	// Heads yields what is needed to find out which conversations changed, ordered by id; see All.
	Heads(ctx context.Context) iter.Seq2[Head, error]
	// Tell sends a message to the other replicas. It may get lost.
	Tell(ctx context.Context, topic string, body []byte) error

	// Incarnation returns a name of the stored data: it is another one when the store has lost what it had.
	Incarnation(ctx context.Context) (string, error)
	// Announce says what this replica sees, which holds until the lease ends, and returns what every replica with a lease says, and
	// the incarnation.
	Announce(ctx context.Context, r Replica, lease time.Duration) (group []Replica, incarnation string, err error)
	// Leave ends the lease of a replica.
	Leave(ctx context.Context, replica string) error
	// Claim gives a replica the right to refresh a conversation until ttl is over or its lease ends. It returns false while another has it.
	Claim(ctx context.Context, id ID, replica string, ttl time.Duration) (bool, error)
	// Unclaim gives it back.
	Unclaim(ctx context.Context, id ID, replica string) error
}

// Head is what identifies the state of a stored conversation.
type Head struct {
	Touch

	Revision uint64
}

// Change is something that happened to a SharedStore. One of its fields is set.
type Change struct {
	Missed       bool          // changes may have been lost: everything is to be read again
	Conversation *Conversation // was written
	Removed      ID            // was deleted
	Generation   *Generation   // was written
	Touches      []Touch       // were written
	Message      *Message      // was told
}

// Message is what one replica tells the others.
type Message struct {
	From  string // the connection of the store that sent it
	Topic string
	Body  []byte
}

// Replica is what one replica says of itself.
type Replica struct {
	ID string `json:"id"`
	// Ready tells that clients come to it.
	Ready bool `json:"ready"`
	// Sees has the tool-schema hash of each server that has settled there: "" for one that hasn't yet. What it can't see it leaves out.
	Sees map[string]string `json:"sees,omitzero"`
}
