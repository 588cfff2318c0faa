package main

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
)

// adminTimeout is long enough for a look at a backend that is slow.
const adminTimeout = time.Minute

// adminFlags say where a running sidecar is.
type adminFlags struct {
	Admin          string `placeholder:"URL" help:"Admin API of the running sidecar (default http://${adminListen}, or what $$MCP_SIDECAR_ADMIN_LISTEN says)."`
	AdminTokenFile string `placeholder:"FILE" help:"Bearer token of the admin API."`
}

func (f *adminFlags) client(con console) (*admin.Client, error) {
	base := f.Admin
	if base == "" {
		base = "http://" + localAddr(con.getenv("MCP_SIDECAR_ADMIN_LISTEN"))
	}
	c, err := admin.NewClient(base, f.AdminTokenFile)
	if err != nil {
		return nil, usageError{err}
	}
	return c, nil
}

// localAddr is where a listener can be reached from its own machine.
func localAddr(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return defaultsInHelp()["adminListen"]
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// quiesceCmd prepares a sidecar for its end.
type quiesceCmd struct {
	adminFlags
}

// Help explains the command.
func (*quiesceCmd) Help() string {
	return "Detection freezes, the sidecar turns not ready and holds nothing any more, clients are asked to reconnect " +
		"elsewhere, and traffic goes on until the process is ended. Meant for the preStop hook of a Kubernetes container."
}

// Run implements the command.
func (q *quiesceCmd) Run(ctx context.Context, con console) error {
	c, err := q.client(con)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	if err := c.Quiesce(ctx); err != nil {
		return err
	}
	fmt.Fprintln(con.stdout, "quiescing")
	return nil
}
