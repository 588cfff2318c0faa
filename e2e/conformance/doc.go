// Package conformance runs the public MCP conformance suite twice, directly against the official Go SDK's
// everything-server and through the sidecar, and requires the same set of (scenario, check, status) from both.
//
// The tests need npm and network access to the package registries; they are built with the tag "conformance"
// (make conformance).
package conformance
