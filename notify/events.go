package notify

import (
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// EventType says what happened to a conversation's refresh. The set is closed.
type EventType string

// The types of events.
const (
	// EventStarted: the agent server is about to be called.
	EventStarted EventType = "refresh_started"
	// EventSucceeded: the conversation has the generations of the event.
	EventSucceeded EventType = "refresh_succeeded"
	// EventFailed: it doesn't; NextAttempt tells when it is tried again.
	EventFailed EventType = "refresh_failed"
	// EventSuperseded: a newer generation came meanwhile, or the registration ended.
	EventSuperseded EventType = "refresh_superseded"
	// EventGone: the conversation no longer exists, its registration was removed.
	EventGone EventType = "conversation_gone"
)

// Event tells about one conversation's refresh, for people to watch. Nothing in
// the sidecar depends on events: they may be dropped.
type Event struct {
	Type         EventType       `json:"type"`
	At           time.Time       `json:"at"`
	Conversation conversation.ID `json:"conversation"`
	AgentServer  string          `json:"agentServer"`
	// Generations are the desired ones when the refresh began, by server.
	Generations map[string]uint64 `json:"generations,omitempty"`
	// How tells how a success is known.
	How conversation.How `json:"how,omitempty"`
	// Attempt counts from 1 since the last success.
	Attempt int `json:"attempt,omitempty"`
	// Seconds is how long the refresh took.
	Seconds float64 `json:"seconds,omitempty"`
	Reason  Reason  `json:"reason,omitempty"`
	Message string  `json:"message,omitempty"`
	// NextAttempt is zero when something has to change first.
	NextAttempt time.Time `json:"nextAttempt,omitzero"`
}
