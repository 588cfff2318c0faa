// Package conversation is the domain of mcp-sidecar: which conversations exist at which agent server, what the servers they use offer
// (generations), what each conversation is known to have (applied), and what follows from the two (its state).
//
// The Registry holds it all in memory and owns its consistency; a Store keeps it across restarts and between replicas. Staleness is never
// written down: it is derived from the applied and the desired generations, so that a new generation costs one write however many
// conversations there are.
//
// Everything exported is safe for concurrent use unless it says otherwise. The package starts no goroutine but those of Registry.Run,
// which end with it.
package conversation
