package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/health"
)

// Bounds of what is kept of a change, for people who look at it.
const (
	maxDefinition  = 32 << 10 // bytes of one definition
	maxDefinitions = 1 << 20  // bytes of all of them, indented
	maxEventNames  = 100      // names of tools in one event, of each kind
	maxEventName   = 200      // bytes of one
)

// newChange tells what is different from before. Of a generation that an earlier
// process saw, only the digests are known.
func newChange(e health.Event, before *health.Toolset, digests map[string]string) *admin.Change {
	c := &admin.Change{At: e.At, Cause: e.ChangeCause, Silent: e.ChangeCause == health.ChangeSilent}
	changes := e.Changes
	if len(changes) == 0 && e.ChangeCause != "" && e.Tools != nil {
		changes = diffDigests(digests, e.Tools)
	}
	old, present := definitions(before), definitions(e.Tools)
	room := maxDefinitions
	take := func(raw json.RawMessage) string {
		text := indent(raw)
		if len(text) > room {
			return ""
		}
		room -= len(text)
		return text
	}
	for _, ch := range changes {
		t := admin.ToolChange{Tool: ch.Tool, Kind: ch.Kind, Breaking: ch.Breaking, Details: ch.Details}
		switch ch.Kind {
		case health.ChangeAdded:
			c.Added = append(c.Added, ch.Tool)
			t.After = take(present[ch.Tool])
		case health.ChangeRemoved:
			c.Removed = append(c.Removed, ch.Tool)
			t.Before = take(old[ch.Tool])
		default:
			c.Changed = append(c.Changed, ch.Tool)
			t.Before, t.After = take(old[ch.Tool]), take(present[ch.Tool])
		}
		c.Breaking = c.Breaking || ch.Breaking
		c.Tools = append(c.Tools, t)
	}
	return c
}

// indent returns JSON with line breaks, or "" where that gets large: each level of
// nesting makes every line below it longer.
func indent(raw json.RawMessage) string {
	const deepest = 40
	var text bytes.Buffer
	if len(raw) > maxDefinition || nesting(raw) > deepest || json.Indent(&text, raw, "", "  ") != nil || text.Len() > 4*maxDefinition {
		return ""
	}
	return text.String()
}

// nesting returns how deep JSON is nested.
func nesting(raw json.RawMessage) int {
	depth, most := 0, 0
	quoted, escaped := false, false
	for _, c := range raw {
		switch {
		case escaped:
			escaped = false
		case quoted && c == '\\':
			escaped = true
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
			most = max(most, depth)
		case c == '}' || c == ']':
			depth--
		}
	}
	return most
}

func definitions(ts *health.Toolset) map[string]json.RawMessage {
	if ts == nil {
		return nil
	}
	byName := make(map[string]json.RawMessage, len(ts.Tools))
	for _, t := range ts.Tools {
		byName[t.Name] = t.Raw
	}
	return byName
}

// diffDigests tells what changed as far as digests can. What can't be judged
// counts as breaking.
func diffDigests(before map[string]string, after *health.Toolset) []health.Change {
	var changes []health.Change
	gone := maps.Clone(before)
	for _, t := range after.Tools {
		switch digest, known := before[t.Name]; {
		case !known:
			changes = append(changes, health.Change{Tool: t.Name, Kind: health.ChangeAdded})
		case digest != t.Digest:
			changes = append(changes, health.Change{Tool: t.Name, Kind: health.ChangeChanged, Breaking: true})
		}
		delete(gone, t.Name)
	}
	for name := range gone {
		changes = append(changes, health.Change{Tool: name, Kind: health.ChangeRemoved, Breaking: true})
	}
	slices.SortFunc(changes, func(x, y health.Change) int { return strings.Compare(x.Tool, y.Tool) })
	return changes
}

// generationEvent is a change as the feed tells it, which keeps many of them.
func generationEvent(c *admin.Change) admin.Event {
	e := admin.Event{Type: "generation", Cause: c.Cause, Generation: c.Generation, Breaking: c.Breaking}
	some := func(names []string) []string {
		n := min(len(names), maxEventNames)
		e.Omitted += len(names) - n
		short := make([]string, n)
		for i, name := range names[:n] {
			short[i] = strings.ToValidUTF8(name[:min(len(name), maxEventName)], "")
		}
		return short
	}
	e.Added, e.Removed, e.Changed = some(c.Added), some(c.Removed), some(c.Changed)
	return e
}
