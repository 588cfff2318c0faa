// Package chaos lets everything fail at once, for minutes: backends are killed, stopped, frozen, started slowly and
// replaced by other versions, the connections to them are reset, half closed, stalled and cut, and the sidecar itself is
// killed now and then. Meanwhile clients of old and new revisions of the protocol keep a ledger of what they asked and
// what came back, byte by byte. It must add up with what the backends' processes say that they executed: every request
// has exactly one answer, nothing that changes something ran twice, nobody is stuck afterwards, and the sidecar has
// given back all that it took.
//
// These servers stand behind one sidecar:
//
//	stateful, stateless, default   Streamable HTTP, as servers keep sessions, don't, or only say so; for the last one
//	                               requests wait so long that they get signs of life
//	sse                            HTTP+SSE of 2024-11-05: a client's stream and its address outlive the backend
//	stdio, shared                  processes that the sidecar starts itself, one for each session or one for all; they
//	                               are killed and frozen, and the script that they come from is deployed anew, broken,
//	                               touched and removed. None of them may be left when the sidecar has stopped
//
// Some clients speak 2025-03-26 and send batches, of which each request has an entry in the ledger. Some are asked
// questions by their backend, and answer late. The sidecar's configuration changes while it runs.
//
// What is done to whom comes from a seed, which is printed. These set the run:
//
//	CHAOS_DURATION   how long things fail (3m)
//	CHAOS_SEED       the seed (of the clock)
//	CHAOS_LOG_LEVEL  log level of the sidecar (info)
//	CHAOS_CLIENTS    clients that were never seen again, for the test of abandoned sessions (2000)
//
// The tests need nothing but Go; they are built with the tag "chaos" (make chaos).
package chaos
