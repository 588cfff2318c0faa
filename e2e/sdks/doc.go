// Package sdks tests the sidecar with clients and servers made with other people's SDKs: the official Go and TypeScript
// SDKs, FastMCP 3 and 4, mcp-go. Clients of all of them call a tool through the sidecar while the backend's process is
// replaced ten times. No call may fail, no client may get stuck, and each must be told of new tools exactly once.
//
// The clients print one JSON object a line:
//
//	{"event": "connected", "protocol": "2025-11-25"}  the handshake is done, with the revision that was agreed
//	{"event": "tools", "tools": ["balance", "count"]}  a complete list: at the start, whenever it was told, at the end
//	{"event": "call", "error": "…"}                     a call ended, without an error when the answer was right
//	{"event": "told"}                                   a notice that the tools changed has arrived
//	{"event": "error", "error": "…"}                    anything else that went wrong, a lost stream for example
//	{"event": "done"}                                   it has stopped in good order, after SIGTERM
//
// The tests need npm, Python 3.11 or newer and network access to the package registries; they are built with the tag
// "sdks" (make e2e-sdks).
package sdks
