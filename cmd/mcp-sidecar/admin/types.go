package admin

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// ErrUnknownServer is returned by [Servers] for a name that isn't configured.
var ErrUnknownServer = errors.New("there is no such server")

// RejectedError is returned by [Control] for a configuration with mistakes.
type RejectedError struct {
	Problems []string // each for people, with its place
}

// Error implements error, with one line for each problem.
func (e *RejectedError) Error() string { return strings.Join(e.Problems, "\n") }

// Servers tells about the backends. It is safe for concurrent use.
type Servers interface {
	// Servers returns all of them, in the order of the configuration.
	Servers() []Server
	// Server returns one of them, with all that is known of its last change.
	Server(name string) (Server, error)
	// Check looks at one now and returns what was found.
	Check(ctx context.Context, name string) (Server, error)
}

// Conversations is what the API needs of the registry.
type Conversations interface {
	Register(ctx context.Context, r conversation.Registration) (c conversation.Conversation, created bool, err error)
	Remove(ctx context.Context, id conversation.ID) error
	Get(id conversation.ID) (conversation.View, error)
	List(q conversation.Query) (conversation.Page, error)
	Refresh(ctx context.Context, id conversation.ID) error
}

// Control is about the process as a whole.
type Control interface {
	Status() Status
	// Reload reads the configuration again. An error says why the last good one
	// stays in force; it is shown to the caller.
	Reload(ctx context.Context) error
	// Quiesce prepares for the end: see the quiesce command. Doing it twice is
	// harmless.
	Quiesce(ctx context.Context) error
}

// Status is the sidecar at one glance.
type Status struct {
	Version   string    `json:"version"`
	StartedAt time.Time `json:"startedAt"`
	Quiescing bool      `json:"quiescing"`
	// ConfigError says why the configuration that was read last isn't in force.
	ConfigError  string        `json:"configError,omitempty"`
	Servers      []Server      `json:"servers"`
	AgentServers []AgentServer `json:"agentServers"`
	// OldestStale is since when the conversation that is stale for longest is so.
	OldestStale *time.Time `json:"oldestStale,omitempty"`
}

// AgentServer is one agent server of the configuration.
type AgentServer struct {
	Name string `json:"name"`
	URL  string `json:"url"` // without query and credentials
	// Conversations has the number of conversations in each state.
	Conversations map[string]int `json:"conversations"`
}

// Server is one backend.
type Server struct {
	Name      string `json:"name"`
	Path      string `json:"path"`
	Upstream  string `json:"upstream,omitempty"` // without query and credentials
	Transport string `json:"transport"`
	// State is unknown, away, ready (answers, but its tool list hasn't settled) or settled.
	State string `json:"state"`
	// Generation is 0 while none is known.
	Generation uint64     `json:"generation"`
	Hash       string     `json:"hash,omitempty"`
	Tools      []Tool     `json:"tools"`
	ServerInfo *Info      `json:"serverInfo,omitempty"`
	SettledAt  *time.Time `json:"settledAt,omitempty"`
	// Swaps counts the changes of process that were seen since the sidecar started.
	Swaps      uint64  `json:"swaps"`
	LastSwap   *Swap   `json:"lastSwap,omitempty"`
	LastChange *Change `json:"lastChange,omitempty"`
	Sessions   int     `json:"sessions"`
	Streams    int     `json:"streams"`
	Held       int     `json:"held"`
}

// Tool is one tool that a server offers.
type Tool struct {
	Name   string `json:"name"`
	Digest string `json:"digest,omitempty"`
}

// Info is what a server says of itself.
type Info struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

// Swap is a change of the process behind a server.
type Swap struct {
	At    time.Time `json:"at"`
	Cause string    `json:"cause"`
}

// Change is what the newest generation changed.
type Change struct {
	At         time.Time `json:"at"`
	Generation uint64    `json:"generation,omitempty"` // what it led to
	// Cause is restart, list_changed or silent: neither another process nor a notice.
	Cause    string   `json:"cause,omitempty"`
	Added    []string `json:"added,omitempty"`
	Removed  []string `json:"removed,omitempty"`
	Changed  []string `json:"changed,omitempty"`
	Breaking bool     `json:"breaking"`
	Silent   bool     `json:"silent"`
	// Tools tells of each tool in detail. It is there where one server was asked for.
	Tools []ToolChange `json:"tools,omitempty"`
}

// ToolChange is what happened to one tool.
type ToolChange struct {
	Tool     string `json:"tool"`
	Kind     string `json:"kind"` // added, removed or changed
	Breaking bool   `json:"breaking"`
	// Details has one line for each difference, for people. There is none where only
	// the digest of the tool was known.
	Details []string `json:"details,omitempty"`
	// Before and After are the definitions: JSON as the server sent it, indented. Large
	// ones are left out.
	Before string `json:"before,omitempty"`
	After  string `json:"after,omitempty"`
}

// Conversation is one registered conversation.
type Conversation struct {
	ID          string         `json:"id"`
	AgentServer string         `json:"agentServer"`
	AgentURL    string         `json:"agentUrl,omitempty"` // which one, where the name stands for several
	State       string         `json:"state"`
	Source      string         `json:"source"`
	Servers     []Standing     `json:"servers"`
	Attempts    int            `json:"attempts"`
	LastError   *RefreshFailed `json:"lastError,omitempty"`
	NextAttempt *time.Time     `json:"nextAttempt,omitempty"`
	// Forced says that a refresh was asked for and isn't done yet.
	Forced       bool       `json:"forced,omitempty"`
	StaleSince   *time.Time `json:"staleSince,omitempty"`
	CreatedAt    *time.Time `json:"createdAt,omitempty"`
	RegisteredAt *time.Time `json:"registeredAt,omitempty"`
	LastActive   *time.Time `json:"lastActive,omitempty"`
	ExpiresAt    *time.Time `json:"expiresAt,omitempty"`
}

// Standing is how a conversation stands towards one server.
type Standing struct {
	Name    string `json:"name"`
	Desired uint64 `json:"desired"` // generation; 0 while none is known
	Applied uint64 `json:"applied"` // generation; 0 when nothing is known
	// How tells how applied is known: observed, acknowledged, created, lost, or nothing.
	How       string     `json:"how,omitempty"`
	AppliedAt *time.Time `json:"appliedAt,omitempty"`
	Current   bool       `json:"current"`
}

// RefreshFailed is why the last attempt failed.
type RefreshFailed struct {
	Reason  string     `json:"reason"`
	Message string     `json:"message,omitempty"`
	At      *time.Time `json:"at,omitempty"`
}

// Registration is the body of a PUT of a conversation. Everything is optional.
type Registration struct {
	AgentServer string     `json:"agentServer,omitempty"` // its name, or its URL; default: the only one, or "default"
	Servers     []string   `json:"servers,omitempty"`     // default: all
	CreatedAt   *time.Time `json:"createdAt,omitempty"`   // when the agent server created the conversation
}

// ServerList is the answer to GET /v1/servers.
type ServerList struct {
	Servers []Server `json:"servers"`
}

// ConversationPage is the answer to GET /v1/conversations.
type ConversationPage struct {
	Conversations []Conversation `json:"conversations"`
	Next          string         `json:"next,omitempty"` // cursor of the next page
}
