package health

import "time"

// State is how far a backend can be used.
type State int

// The states of a backend.
const (
	Unknown State = iota // not looked yet
	Away                 // nothing answers, or what answers isn't ready
	Ready                // the process answers, its tools are not settled
	Settled              // its tools are settled, or can't be known
)

// String returns the state in lower case.
func (s State) String() string {
	switch s {
	case Away:
		return "away"
	case Ready:
		return "ready"
	case Settled:
		return "settled"
	case Unknown:
		return "unknown"
	default:
		return "invalid"
	}
}

// Why the process behind a server is taken for another one.
const (
	CauseRestart     = "restart"      // nothing listened for a while, and no connection of before is left
	CauseSessionLost = "session_lost" // it doesn't know the probe's session
	CauseIdentity    = "identity"     // the configured header of its answers changed
	CausePIDFile     = "pid_file"     // the pid file names another process
	CauseServerInfo  = "server_info"  // its connections ended, and it calls itself something else
)

// Causes returns every cause of a swap.
func Causes() []string {
	return []string{CauseRestart, CauseSessionLost, CauseIdentity, CausePIDFile, CauseServerInfo}
}

// Swap says that the process behind a server was replaced.
type Swap struct {
	Cause      string // one of [Causes]
	DetectedAt time.Time
}

// Event is the state of a backend after something happened, or after somebody asked.
type Event struct {
	Server string
	State  State
	Epoch  uint64 // counts the swaps that were seen

	// Swap is set on the first event after a swap.
	Swap *Swap

	// Tools is what the server offers when it is [Settled]. It is nil where the tools can't be known: the backend wants
	// credentials that the probe hasn't got, or its list can't be used and no earlier one is known.
	Tools *Toolset

	// Changes and ChangeCause (as in schema_changes_total) are set on the event that announces another hash than before.
	// Changes is empty where only the hash of before is known.
	Changes     []Change
	ChangeCause string

	Reason Reason // why the backend is [Away]
	At     time.Time
	Seq    uint64 // counts the events of a checker
}
