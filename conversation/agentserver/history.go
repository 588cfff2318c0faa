package agentserver

import (
	"encoding/json"
	"slices"
	"time"
)

// The kinds of events.
const (
	KindMessage  = "message"
	KindToolCall = "tool_call"
)

// Event is one entry of a conversation's history.
type Event struct {
	ID        string          `json:"id"`
	Timestamp time.Time       `json:"timestamp"`
	Kind      string          `json:"kind"`             // KindMessage or KindToolCall
	Source    string          `json:"source,omitempty"` // "user" or "agent"
	Text      string          `json:"text,omitempty"`
	Tool      string          `json:"tool,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
	Failed    bool            `json:"failed,omitempty"` // the call failed, or its result says so
}

// Append adds an event to the conversation's history, which gives it its id and
// time, and returns it as it was added.
func (c *Conversation) Append(e Event) Event {
	e.ID = string(newID())
	e.Timestamp = time.Now().UTC()
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.history) - c.srv.cfg.MaxHistory + 1; n > 0 {
		c.history = slices.Delete(c.history, 0, n)
	}
	c.history = append(c.history, e)
	c.updated = e.Timestamp
	return e
}

// History returns the events of the conversation, oldest first.
func (c *Conversation) History() []Event {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.history)
}
