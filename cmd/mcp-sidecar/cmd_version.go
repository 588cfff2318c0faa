package main

import (
	"fmt"

	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// versionCmd prints what was built.
type versionCmd struct {
	JSON bool `name:"json" env:"-" help:"Print JSON."`
}

// Run implements the command.
func (v *versionCmd) Run(con console) error {
	b := metrics.ReadBuild()
	if v.JSON {
		return printJSON(con.stdout, map[string]string{"version": b.Version, "revision": b.Revision, "date": b.Date, "goVersion": b.GoVersion})
	}
	fmt.Fprintf(con.stdout, "mcp-sidecar %s (revision %s of %s, %s)\n", b.Version, b.Revision, b.Date, b.GoVersion)
	return nil
}
