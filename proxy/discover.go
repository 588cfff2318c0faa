package proxy

import (
	"net/http"
	"slices"
	"sync"
)

// Bounds of the remembered results of server/discover.
const (
	maxDiscoveries = 128
	maxDiscovery   = 64 << 10
)

// discoveries are the last results of server/discover. While the backend is away a
// client is answered from them: it takes any error for a sign that the server only
// speaks an older revision, and stays with that.
//
// A result that isn't marked as public is for the authorization context that it
// was given to (MCP 2026-07-28 "Caching"), which is taken to be the very same
// credentials: here no backend checks them.
type discoveries struct {
	mu       sync.Mutex
	public   bool
	byCaller map[string][]byte // raw results; under "" when they are public
}

// learn remembers a result.
func (d *discoveries) learn(caller string, result []byte) {
	if len(result) > maxDiscovery {
		return
	}

	d.mu.Lock()
	defer d.mu.Unlock()

	public := stringMember(result, "cacheScope") == "public"
	if d.byCaller == nil || public != d.public || len(d.byCaller) >= maxDiscoveries && d.byCaller[caller] == nil {
		d.byCaller, d.public = make(map[string][]byte), public
	}

	if public {
		caller = ""
	}

	d.byCaller[caller] = slices.Clone(result)
}

// recall returns the last result for a caller, nil when there is none.
func (d *discoveries) recall(caller string) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()

	if d.public {
		caller = ""
	}

	return d.byCaller[caller]
}

// forget drops what was remembered: the backend doesn't answer like that any more.
func (d *discoveries) forget() {
	d.mu.Lock()
	defer d.mu.Unlock()

	d.byCaller = nil
}

// recall answers server/discover with the last known result while the backend is
// away. It returns false when it didn't.
func (x *exchange) recall() bool {
	if v := x.srv.gate.look(); !v.away {
		return false
	}

	result := x.srv.discoveries.recall(x.caller())
	if result == nil {
		return false
	}

	x.outcome = outcomeOK

	body := slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), x.env.messages[0].id, []byte(`,"result":`), result, []byte("}"))
	if x.out.message(http.StatusOK, body) != nil {
		x.outcome = outcomeClosed
	}

	return true
}

// discovered looks at an answer to server/discover, and makes a result declare
// that the client will be told of changed tools.
func (x *exchange) discovered(a *answer, rpc *message) {
	if rpc != nil && !rpc.isError {
		a.head = x.discoverResult(a.head)
		return
	}

	switch {
	case rpc != nil && rpc.errorCode != codeNoMethod:
	case rpc == nil && a.StatusCode != http.StatusBadRequest && a.StatusCode != http.StatusNotFound:
	default: // a server of earlier revisions
		x.srv.discoveries.forget()
	}
}

// discoveredEvent does the same for a result that came as an event.
func (x *exchange) discoveredEvent(ev *event) []byte { return ev.with(x.discoverResult(ev.data)) }

// discoverResult edits and remembers the result in a JSON-RPC response.
func (x *exchange) discoverResult(response []byte) []byte {
	body, _ := withListChanged(response)

	s := scanner{b: body}
	if at, ok := s.find("result"); ok {
		x.srv.discoveries.learn(x.caller(), at.of(body))
	}

	return body
}

// caller names who sent a request, by everything that the backend may know them by
// when there is no session.
func (x *exchange) caller() string {
	parts := []string{x.r.URL.RawQuery}

	for _, name := range append(credentialHeaders[:], "Cookie") {
		for _, v := range x.forward[name] {
			parts = append(parts, name, v)
		}
	}

	return fingerprint(parts...)
}
