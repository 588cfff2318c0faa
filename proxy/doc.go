// Package proxy is what agents talk to: it forwards MCP traffic byte for byte to
// the server behind it and carries every client across a swap of that server's
// process.
//
// A request passes these rooms, each a file or two:
//
//   - routing (proxy.go, route.go, exchange.go) finds the server and the session of
//     a request and reads its JSON-RPC envelope;
//   - the gate (gate.go, hold.go) keeps it while the backend is away;
//   - forwarding (forward.go, judge.go, replay.go) sends it, decides what the
//     answer means, and sends it again only where the first try can't have had an
//     effect;
//   - copying (response_json.go, response_sse.go, reply.go) hands the answer to the client, event by
//     event where it is an event stream;
//   - sessions (session.go, sessions.go, initialize.go, reinit.go) give each
//     client an id of the sidecar's own, sealed, and re-create the backend's
//     session behind it when the backend lost it;
//   - streams (stream.go, pump.go, resume.go, announce.go) keep clients' listening
//     streams open and tell them of changed tools;
//   - subscriptions (listen.go, relisten.go, subscription.go, filter.go) do so for
//     clients of the stateless revision, and discover.go answers them while the
//     backend is away;
//   - fence.go keeps answers that belong to an earlier process from a later one;
//   - sse*.go do all that for servers of the transport of 2024-11-05.
//
// What is known of the backend comes from outside, through [Proxy.SetBackend];
// what the traffic shows goes out through [Deps.Suspect]. The proxy closes its own
// gate as soon as traffic shows that the backend is away and opens it at the next
// verdict.
//
// A [Proxy] is an http.Handler and safe for concurrent use.
package proxy
