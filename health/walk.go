package health

import (
	"context"
	"encoding/json"
	"errors"

	jsonv2 "github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/mark3labs/mcp-go/mcp"
)

// maxPages bounds a listing whose pages have nothing on them.
const maxPages = 10_000

// list returns every tool, as it was sent.
func (p *probe) list(ctx context.Context) ([]json.RawMessage, error) {
	var tools []json.RawMessage
	err := p.timed(ctx, ProbeList, p.cfg.ListTimeout, func(ctx context.Context) error {
		var err error
		tools, err = p.walk(ctx)
		if e, ok := errors.AsType[*rpcError](err); ok && e.Code == codeInvalidParams && len(tools) > 0 {
			// A cursor may become invalid between two pages: the walk begins again, once.
			tools, err = p.walk(ctx)
		}
		return err
	})
	return tools, err
}

// walk goes from page to page. With an error it returns the tools so far.
func (p *probe) walk(ctx context.Context) ([]json.RawMessage, error) {
	var (
		tools  []json.RawMessage
		size   int64
		params map[string]any
		l      = p.link.Load()
		seen   = map[string]bool{}
	)
	for range maxPages {
		raw, _, err := p.call(ctx, l, ProbeList, string(mcp.MethodToolsList), params)
		if e, ok := errors.AsType[*rpcError](err); ok && e.Code == codeMethodNotFound && len(seen) == 0 {
			return nil, nil // a server without tools
		}
		if err != nil {
			return tools, err
		}
		if size += int64(len(raw)); size > p.cfg.MaxListBytes {
			return tools, failure(ProbeList, ReasonTooLarge, "the list of tools is larger than the limit of %d bytes", p.cfg.MaxListBytes)
		}
		page, err := parsePage(raw)
		if err != nil {
			return tools, failure(ProbeList, ReasonInvalid, "page %d of the list of tools can't be read: %w", len(seen)+1, err)
		}
		tools = append(tools, page.tools...)
		switch {
		case len(tools) > p.cfg.MaxTools:
			return tools, failure(ProbeList, ReasonTooMany, "the server lists more tools than the limit of %d", p.cfg.MaxTools)
		case page.next == nil:
			return tools, nil
		case seen[*page.next]:
			return tools, failure(ProbeList, ReasonRepeatedCursor, "the server sent the same cursor twice")
		}
		seen[*page.next] = true
		params = map[string]any{"cursor": *page.next}
	}
	return tools, failure(ProbeList, ReasonTooMany, "the list of tools has more than %d pages", maxPages)
}

type page struct {
	tools []json.RawMessage
	next  *string // nil on the last page; "" is a cursor like any other
}

// parsePage reads the result of tools/list. Names are matched exactly, and repeated ones are tolerated, as in the tools.
func parsePage(raw []byte) (page, error) {
	var result struct {
		Tools      jsontext.Value `json:"tools"`
		NextCursor *string        `json:"nextCursor"`
	}
	loose := jsonv2.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if err := jsonv2.Unmarshal(raw, &result, loose); err != nil {
		return page{}, err
	}
	if result.Tools == nil {
		return page{}, errors.New("it has no tools member")
	}
	var values []jsontext.Value
	if err := jsonv2.Unmarshal(result.Tools, &values, loose); err != nil {
		return page{}, err
	}
	pg := page{tools: make([]json.RawMessage, len(values)), next: result.NextCursor}
	for i, v := range values {
		pg.tools[i] = json.RawMessage(v)
	}
	return pg, nil
}
