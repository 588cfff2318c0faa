// Package notify brings conversations to the desired generation: it calls the
// refresh action of their agent servers until each has the new tools.
//
// The [Reconciler] is level-triggered. Its queue holds conversation ids and
// nothing else; what a conversation should have and what it has is read again
// from the [Registry] before every attempt and before every retry. So an event
// that was lost, doubled or late costs time and never correctness, and a crash at
// any point repeats a refresh rather than losing one: the record is written last.
//
// Each agent server has a queue and a client of its own. One that is dead or
// hangs keeps only its own conversations waiting.
//
// # The client
//
// Requests go straight to the configured agent server. Proxy variables of the
// environment (HTTP_PROXY and the like) are not used: agent servers are
// neighbours, and the key fully controls them. Redirects are never followed. The
// key and the CA file are read again on every attempt, so that rotating them needs no restart. Link-local,
// multicast, unspecified and cloud metadata addresses are refused when the
// connection is made, whatever name resolved to them.
//
// The package takes no credentials into errors, logs or metrics, and at most a
// short redacted excerpt of an answer.
package notify
