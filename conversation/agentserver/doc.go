// Package agentserver is a small agent server: conversations that hold MCP
// clients, and an action that refreshes the tools of an active conversation.
// It has no model and no workspace. The demo and the tests use it, and so can
// agents that are written in Go.
//
// [Server] keeps [Conversation] values and is an http.Handler with the REST
// surface of the OpenHands agent server as far as it is about conversations
// and their tools: creating, finding, counting and deleting them, and
// POST /api/conversations/{id}/refresh_mcp_tools.
//
// [Conversation.RefreshMCPTools] brings a conversation's tools up to date in
// place; its id and its history stay:
//
//   - A client whose session is healthy is asked for its tools once (all pages),
//     without a new handshake. Only when the session was terminated, or the
//     request was answered by a JSON-RPC error, or the connection was already
//     down, is the client connected anew, and then listed once more in the same
//     call.
//   - Every client is tried; what went wrong is reported together.
//   - Refreshes because of notifications/tools/list_changed and explicit ones
//     share one lock.
//   - Clients that had no tools are refreshed too. Clients that are added or
//     closed while the conversation runs are tracked or forgotten.
//   - The tools of a client are replaced by what it lists (added, updated,
//     removed), also when nothing seems to have changed.
//   - A conversation that hasn't connected its clients yet connects them.
//   - A refresh that failed while a server was away succeeds when it is back.
//
// [Client] and [RemoteConversation] do the same at an agent server elsewhere, so
// that code which keeps tools fresh needs one small interface for both:
//
//	type refresher interface {
//		RefreshMCPTools(ctx context.Context) error
//	}
//
// All exported methods are safe for concurrent use.
package agentserver
