package conversation

import "log/slog"

// Instance is one agent server that can be called: a configured one, or one of those that a configured pattern stands for.
type Instance struct {
	AgentServer string // the configured name
	URL         string // where it is, if the configured one is a pattern; else ""
}

// Name returns a name that no other instance has.
func (i Instance) Name() string {
	if i.URL == "" {
		return i.AgentServer
	}
	return i.AgentServer + " " + i.URL
}

// Key is the credential that an agent server wants. It doesn't show in texts.
type Key string

const hidden = "<redacted>"

// String hides the key.
func (Key) String() string { return hidden }

// GoString hides the key.
func (Key) GoString() string { return hidden }

// MarshalText hides the key.
func (Key) MarshalText() ([]byte, error) { return []byte(hidden), nil }

// LogValue hides the key.
func (Key) LogValue() slog.Value { return slog.StringValue(hidden) }

// At returns the agent server that has the conversation.
func (c *Conversation) At() Instance { return Instance{c.AgentServer, c.AgentURL} }

// Relocate records that another of the agent servers that the configured pattern stands for has the conversation now. What failed before is
// forgotten. Use it in Registry.Update.
func (c *Conversation) Relocate(url string) {
	c.AgentURL = url
	c.reset()
}

// Where returns the agent server that has the conversation, and whether there is such a conversation.
func (r *Registry) Where(id ID) (Instance, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.entries[id]
	if e == nil {
		return Instance{}, false
	}
	return Instance{e.agent.name, e.url}, true
}

// Instances returns the agent servers behind configured patterns that have conversations, and how many.
func (r *Registry) Instances() map[Instance]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := make(map[Instance]int)
	for _, e := range r.order {
		if e.url != "" && e.agent.pattern {
			found[Instance{e.agent.name, e.url}]++
		}
	}
	return found
}

// locate checks the address of a registration and returns what is kept of it: one of many agent servers is known by its address only, any
// other by its name. mu is held.
func (a *agentServer) locate(url string) (string, error) {
	switch {
	case !a.pattern:
		return "", nil
	case url == "":
		return "", &UnlocatedError{AgentServer: a.name}
	default:
		return intern(url), nil
	}
}

// callable tells whether the address of a conversation there is complete. mu is held.
func (a *agentServer) callable(url string) bool { return a.configured && a.pattern == (url != "") }
