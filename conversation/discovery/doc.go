// Package discovery finds the conversations that use this sidecar without anybody registering them: it asks agent servers for their
// conversations and keeps those whose MCP configuration names one of the sidecar's URLs.
//
// A Discoverer polls each agent server by itself, so that a slow one delays no other. Most runs read only what changed since the run before;
// now and then one reads everything. ReadInfo and ReadEvents read what an agent server sends by itself, and Look takes one look for people.
//
// What agent servers send holds what users wrote, and is large. It is read as a stream within bounds, a few members of it are kept, and none of
// it appears in errors or logs.
package discovery
