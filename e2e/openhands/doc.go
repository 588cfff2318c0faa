// Package openhands tests the sidecar with the real OpenHands agent server. Conversations that are alive there, with a
// fake model behind them, use a tool while the MCP server behind the sidecar is replaced by one with other tools. Then
// the model must be offered exactly these in its next completion, no call may have failed, and each conversation must have
// its id and its history as before. The MCP servers are made with FastMCP: that of the MCP SDK 1, and the project's versions
// 3 and 4.
//
// The released agent server has no refresh action. python/refresh_action.py adds it from outside, as it is proposed there;
// everything runs without it, too.
//
// The tests need Python 3.12, and the package index when they run for the first time: then some 200 packages are put into
// the user's cache (with uv, where it is installed, in a fraction of pip's time). They are built with the tag "openhands"
// (make e2e-openhands). python/requirements.txt is made of requirements.in, in that directory, with
//
//	uv pip compile --python 3.12 --generate-hashes --no-header --no-annotate -o requirements.txt requirements.in
package openhands
