package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// statusCmd shows a running sidecar.
type statusCmd struct {
	adminFlags

	JSON bool `name:"json" env:"-" help:"Print JSON."`
}

// Run implements the command.
func (s *statusCmd) Run(ctx context.Context, con console) error {
	c, err := s.client(con)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	st, err := c.Status(ctx)
	if err != nil {
		return err
	}
	if s.JSON {
		return printJSON(con.stdout, st)
	}
	return printStatus(con.stdout, st, time.Now())
}

func printStatus(w io.Writer, st admin.Status, now time.Time) error {
	fmt.Fprintf(w, "mcp-sidecar %s, started %s", plain(st.Version), ago(now, st.StartedAt))
	if st.Quiescing {
		fmt.Fprint(w, ", quiescing")
	}
	fmt.Fprint(w, "\n\n")

	t := newTable(w, "SERVER", "PATH", "STATE", "GENERATION", "TOOLS", "HASH", "LAST SWAP", "SESSIONS", "STREAMS", "HELD")
	for _, s := range st.Servers {
		swap := ""
		if s.LastSwap != nil {
			swap = fmt.Sprintf("%s (%s)", ago(now, s.LastSwap.At), s.LastSwap.Cause)
		}
		t.row(s.Name, s.Path, s.State, number(s.Generation), strconv.Itoa(len(s.Tools)), shortHash(s.Hash), swap,
			strconv.Itoa(s.Sessions), strconv.Itoa(s.Streams), strconv.Itoa(s.Held))
	}
	if err := t.flush(); err != nil {
		return err
	}

	if len(st.AgentServers) > 0 {
		fmt.Fprintln(w)
		head := []string{"AGENT SERVER", "URL"}
		for _, state := range conversation.States() {
			head = append(head, strings.ToUpper(string(state)))
		}
		t := newTable(w, head...)
		for _, a := range st.AgentServers {
			row := []string{a.Name, a.URL}
			for _, state := range conversation.States() {
				row = append(row, strconv.Itoa(a.Conversations[string(state)]))
			}
			t.row(row...)
		}
		if err := t.flush(); err != nil {
			return err
		}
	}
	if st.OldestStale != nil {
		fmt.Fprintf(w, "\nThe oldest stale conversation is stale since %s: see mcp-sidecar conversations list --state stale\n", ago(now, *st.OldestStale))
	}
	if st.ConfigError != "" {
		fmt.Fprintf(w, "\nThe configuration file has problems, the last good one is in force:\n%s\n", st.ConfigError)
	}
	return nil
}

// number is a number that is not known while it is 0.
func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}
