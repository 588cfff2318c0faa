package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/health"
	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// maxToolsFile bounds a file of tools, in bytes.
const maxToolsFile = 64 << 20

// listFlags say how a server's tools are listed.
type listFlags struct {
	HeadersFile string        `env:"-" placeholder:"FILE" help:"Headers for a server that wants credentials, one NAME: VALUE a line."`
	SSE         bool          `name:"sse" env:"-" help:"The server talks the old HTTP+SSE transport."`
	IncludeMeta bool          `env:"-" help:"Let _meta and icons of tools count towards the hash."`
	Timeout     time.Duration `env:"-" placeholder:"DURATION" default:"30s" help:"Time for everything (default 30s)."`
}

// list lists the tools of the server at rawURL.
func (f *listFlags) list(ctx context.Context, rawURL string) (health.Toolset, error) {
	u, err := url.Parse(rawURL)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return health.Toolset{}, usageError{errors.New("want the URL of an MCP server, such as http://127.0.0.1:9000/mcp")}
	}
	o := health.ListOptions{URL: u, IncludeMeta: f.IncludeMeta, ClientVersion: metrics.ReadBuild().Version}
	if f.SSE {
		o.Transport = health.TransportSSE
	}
	if f.HeadersFile != "" {
		o.Headers = headersFile(f.HeadersFile)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.Timeout, fmt.Errorf("it took longer than %s", f.Timeout))
	defer cancel()
	return health.List(ctx, o)
}

// toolsCmd prints what a server offers.
type toolsCmd struct {
	listFlags

	URL  string `arg:"" name:"url" help:"URL of the MCP server."`
	JSON bool   `name:"json" env:"-" help:"Print JSON, which diff reads."`
}

// Run implements the command.
func (t *toolsCmd) Run(ctx context.Context, con console) error {
	ts, err := t.list(ctx, t.URL)
	if err != nil {
		return err
	}
	if t.JSON {
		return printJSON(con.stdout, ts)
	}
	return printTools(con.stdout, ts)
}

func printTools(w io.Writer, ts health.Toolset) error {
	if len(ts.Tools) > 0 {
		t := newTable(w, "TOOL", "DIGEST", "DESCRIPTION")
		for _, tool := range ts.Tools {
			var d struct {
				Description string `json:"description"`
			}
			_ = json.Unmarshal(tool.Raw, &d) // only for people: a strange description is left out
			t.row(tool.Name, shortHash(tool.Digest), firstLine(d.Description))
		}
		if err := t.flush(); err != nil {
			return err
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "%s, hash %s\n", count(len(ts.Tools), "tool"), ts.Hash)
	if ts.ServerName != "" {
		fmt.Fprintf(w, "server %s %s\n", plain(ts.ServerName), plain(ts.ServerVersion))
	}
	return nil
}

func firstLine(s string) string {
	const limit = 80
	s, _, _ = strings.Cut(strings.TrimSpace(s), "\n")
	if r := []rune(s); len(r) > limit {
		s = string(r[:limit-1]) + "…"
	}
	return s
}

// diffCmd compares two tool sets.
type diffCmd struct {
	listFlags

	Old  string `arg:"" help:"URL of an MCP server, or a file that tools --json made."`
	New  string `arg:"" help:"The same, to compare with."`
	JSON bool   `name:"json" env:"-" help:"Print JSON."`
}

// diffResult is what diff prints as JSON.
type diffResult struct {
	Old      string          `json:"old"` // hash
	New      string          `json:"new"` // hash
	Breaking bool            `json:"breaking"`
	Changes  []health.Change `json:"changes"`
}

// Run implements the command.
func (d *diffCmd) Run(ctx context.Context, con console) error {
	before, err := d.read(ctx, d.Old)
	if err != nil {
		return usageError{err} // 1 would say that they differ
	}
	after, err := d.read(ctx, d.New)
	if err != nil {
		return usageError{err}
	}
	out := diffResult{Old: before.Hash, New: after.Hash, Changes: health.Diff(before, after)}
	for _, c := range out.Changes {
		out.Breaking = out.Breaking || c.Breaking
	}
	if d.JSON {
		if out.Changes == nil {
			out.Changes = []health.Change{}
		}
		err = printJSON(con.stdout, out)
	} else {
		err = printDiff(con.stdout, out)
	}
	if err == nil && len(out.Changes) > 0 {
		err = errDiffers
	}
	return err
}

func printDiff(w io.Writer, d diffResult) error {
	if len(d.Changes) == 0 {
		_, err := fmt.Fprintln(w, "no difference")
		return err
	}
	breaking := 0
	for _, c := range d.Changes {
		sign, class := "~", "additive"
		switch c.Kind {
		case health.ChangeAdded:
			sign = "+"
		case health.ChangeRemoved:
			sign = "-"
		}
		if c.Breaking {
			class = "breaking"
			breaking++
		}
		fmt.Fprintf(w, "%s %s (%s)\n", sign, plain(c.Tool), class)
		for _, detail := range c.Details {
			fmt.Fprintf(w, "    %s\n", plain(detail))
		}
	}
	_, err := fmt.Fprintf(w, "\n%s, %d breaking\n", count(len(d.Changes), "change"), breaking)
	return err
}

// read returns the tools at a URL or in a file.
func (d *diffCmd) read(ctx context.Context, from string) (health.Toolset, error) {
	if strings.HasPrefix(from, "http://") || strings.HasPrefix(from, "https://") {
		return d.list(ctx, from)
	}
	return readTools(from, d.IncludeMeta)
}

// readTools reads what tools --json printed, or the result of a tools/list, and
// hashes it anew.
func readTools(file string, includeMeta bool) (health.Toolset, error) {
	f, err := os.Open(file)
	if err != nil {
		return health.Toolset{}, usageError{fmt.Errorf("reading tools: %w (want a URL or a file)", err)}
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxToolsFile))
	if err != nil {
		return health.Toolset{}, fmt.Errorf("reading tools: %w", err)
	}
	var list struct {
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.Unmarshal(data, &list); err != nil || list.Tools == nil {
		return health.Toolset{}, usageError{fmt.Errorf("%s isn't what tools --json prints", file)}
	}
	for i, t := range list.Tools {
		var entry struct {
			Raw json.RawMessage `json:"raw"`
		}
		if json.Unmarshal(t, &entry) == nil && entry.Raw != nil {
			list.Tools[i] = entry.Raw
		}
	}
	ts, err := health.HashTools(list.Tools, health.HashOptions{IncludeMeta: includeMeta})
	if err != nil {
		return health.Toolset{}, usageError{fmt.Errorf("%s: %w", file, err)}
	}
	return ts, nil
}
