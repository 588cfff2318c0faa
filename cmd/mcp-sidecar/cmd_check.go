package main

import (
	"errors"
	"fmt"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// checkCmd validates what run would be given.
type checkCmd struct {
	configFlags

	JSON bool `name:"json" env:"-" help:"Print the problems as JSON."`
}

// checkResult is what check prints as JSON.
type checkResult struct {
	Valid    bool             `json:"valid"`
	Problems []config.Problem `json:"problems"`
}

// Run implements the command.
func (c *checkCmd) Run(con console, o origins) error {
	cfg, err := c.load(o)
	bad, ok := errors.AsType[*config.Error](err)
	switch {
	case err != nil && !ok:
		return err
	case c.JSON:
		out := checkResult{Valid: !ok, Problems: []config.Problem{}}
		if ok {
			out.Problems = bad.Problems
		}
		if err := printJSON(con.stdout, out); err != nil {
			return err
		}
	case ok:
		fmt.Fprintln(con.stdout, bad.Error())
	}
	if ok {
		return errInvalid
	}
	if !c.JSON {
		fmt.Fprintf(con.stdout, "ok: %s, %s\n", count(len(cfg.Servers), "server"), count(len(cfg.AgentServers), "agent server"))
	}
	return nil
}
