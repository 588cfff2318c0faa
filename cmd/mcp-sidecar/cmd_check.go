package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
)

// checkCmd validates what run would be given.
type checkCmd struct {
	configFlags

	Live bool `env:"-" help:"Also ask: do the backends answer, are the agent servers reachable, is the key accepted, is there a refresh action, do conversations name this sidecar."`
	JSON bool `name:"json" env:"-" help:"Print JSON."`
}

// checkResult is what check prints as JSON.
type checkResult struct {
	Valid    bool             `json:"valid"`
	Problems []config.Problem `json:"problems"`
	Live     []liveResult     `json:"live,omitempty"`
}

// Run implements the command.
func (c *checkCmd) Run(ctx context.Context, con console, o origins) error {
	cfg, err := c.load(o)
	out := checkResult{Valid: err == nil, Problems: []config.Problem{}}
	if bad, ok := errors.AsType[*config.Error](err); ok {
		out.Problems = bad.Problems
	} else if err != nil {
		return err
	}
	if out.Valid && c.Live {
		out.Live = checkLive(ctx, cfg)
	}
	if c.JSON {
		err = printJSON(con.stdout, out)
	} else {
		err = printCheck(con.stdout, out, cfg)
	}
	if err != nil {
		return err
	}
	for _, r := range out.Live {
		out.Valid = out.Valid && r.OK
	}
	if !out.Valid {
		return errInvalid
	}
	return nil
}

func printCheck(w io.Writer, r checkResult, cfg *config.Config) error {
	for _, p := range r.Problems {
		fmt.Fprintln(w, p)
	}
	if r.Valid {
		fmt.Fprintf(w, "ok: %s, %s\n", count(len(cfg.Servers), "server"), count(len(cfg.AgentServers), "agent server"))
	}
	if len(r.Live) == 0 {
		return nil
	}
	t := newTable(w, "KIND", "NAME", "RESULT", "FOUND")
	for _, l := range r.Live {
		verdict := "ok"
		if !l.OK {
			verdict = "FAILED"
		}
		t.row(l.Kind, l.Name, verdict, l.Detail)
	}
	return t.flush()
}
