// Package agents knows the agent servers that may be called: those of the
// configuration, and those behind its patterns as conversations name them. It
// hands them to the reconciler and to discovery, with the keys that they want.
//
// What a request says of an agent server is a claim. An address counts when the
// configuration allows it. Where the agent server of a conversation or the key
// of an agent server is known, another one replaces it only after it was tried:
// the agent server accepted the key; or the old one no longer has the
// conversation, and the new one does. Nothing of what was found is told to who
// made the claim.
//
// Keys that came with requests are kept in memory. With a session key file they
// are in the store too, sealed. They stand in no log, error or metric.
package agents
