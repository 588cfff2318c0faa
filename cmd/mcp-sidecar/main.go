// Command mcp-sidecar stands in front of an MCP server: it carries clients
// across a deployment of the server and brings the conversations of agent
// servers to the tools that the new process offers.
//
// This is the only package that knows flags, files, signals and which concrete
// types the others are made of.
package main

import (
	"context"
	"os"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], console{
		stdout: os.Stdout,
		stderr: os.Stderr,
		getenv: os.Getenv,
	}))
}
