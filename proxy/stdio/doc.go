// Package stdio serves an MCP server that speaks on its standard input and output
// as one Streamable HTTP endpoint inside the process, so that everything else can
// treat it like any other backend.
//
// A [Bridge] is an [http.RoundTripper]: POST, GET and DELETE are answered as MCP
// 2025-11-25 "Streamable HTTP" describes, by child processes that read and write
// one JSON-RPC message a line ("stdio").
//
// # Processes
//
// Each session has a process of its own, which its initialize starts and its DELETE
// ends. Whoever gives up waiting for a slow start leaves the process behind for the
// next initialize with the same parameters. With [Config.Shared] there is one
// process for everybody; requests that need no session (protocol revision
// 2026-07-28) go to such a common process in any case.
//
// A process that ends takes its session with it: requests that it may have begun
// with fail as on a broken connection, and the session id is unknown from then on,
// so that a client of the endpoint initialises anew and gets a new process. While
// processes fail again and again, starting one fails with [ErrUnavailable], for
// longer each time.
//
// When a watched file changes, the processes are replaced: their sessions are
// unknown to new requests and their GET streams end, running requests are finished,
// and then they are stopped.
//
// # Messages
//
// Requests get ids of the bridge's own on their way to the process, and their
// client's back, byte for byte. Nothing else of a message is changed, except line
// breaks outside of strings, which become spaces.
//
// What a process sends besides answers goes to one place: progress to the request
// that it is about, everything else to the session's GET stream, or else into the
// answer of the session's oldest running request, or else it waits, within bounds,
// for either of them.
//
// A common process serves several clients that know nothing of each other:
//
//   - It is initialised once, by the bridge, as a client without capabilities, and
//     each session gets that result again. A client that asked for an older
//     revision than the one agreed on gets its own: what later ones added, it
//     ignores.
//   - So it may not ask its client for anything. A ping is answered by the bridge,
//     any other request is refused as an unknown method.
//   - Notices of changed lists and resources go to every session. A notification
//     that belongs to no known request goes to the only one that is running, and is
//     dropped if there are several.
//   - Progress tokens are replaced like ids.
package stdio
