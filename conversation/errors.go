package conversation

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrNotFound is returned for a conversation, generation or blob that isn't there.
	ErrNotFound = errors.New("not found")
	// ErrConflict is returned by a Store when the stored value isn't the one that the write was based on.
	ErrConflict = errors.New("changed by another writer")
	// ErrClosed is returned by a Store that was closed.
	ErrClosed = errors.New("store is closed")
	// ErrUnavailable is returned by a Store that can't be read or written now. The Registry goes on in memory and writes later.
	ErrUnavailable = errors.New("store is unavailable")
	// ErrInvalid is wrapped by errors about ids, names and values that can't be accepted.
	ErrInvalid = errors.New("invalid")
	// ErrForbidden is wrapped when an agent server asks for something about another agent server's conversation.
	ErrForbidden = errors.New("not allowed")
	// ErrRemoved is returned when discovery finds a conversation that was removed just now.
	ErrRemoved = errors.New("removed just now")
)

// UnlocatedError is returned for a registration at one of several agent servers that doesn't say at which.
type UnlocatedError struct {
	AgentServer string // the configured name
}

// Error says what is missing.
func (e *UnlocatedError) Error() string {
	return fmt.Sprintf("agent server %q stands for several: give the URL of the one that is meant", e.AgentServer)
}

// UnknownNameError is returned for a server or an agent server that the configuration doesn't have.
type UnknownNameError struct {
	Kind  string   // "server" or "agent server"
	Name  string   // what was asked for
	Known []string // the configured names, sorted
}

// Error names the configured ones.
func (e *UnknownNameError) Error() string {
	if len(e.Known) == 0 {
		return fmt.Sprintf("unknown %s %.70q: none is configured", e.Kind, e.Name)
	}
	return fmt.Sprintf("unknown %s %.70q: configured are %s", e.Kind, e.Name, strings.Join(e.Known, ", "))
}
