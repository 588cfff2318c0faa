package health

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// Tool is one tool as the backend sent it.
type Tool struct {
	Name   string          `json:"name"`
	Digest string          `json:"digest"` // SHA-256 of its canonical form, in hex
	Raw    json.RawMessage `json:"raw"`
}

// Toolset is everything that a server offers, at one moment. It is shared and must not be changed.
type Toolset struct {
	Hash          string    `json:"hash"`  // "sha256:" and hex
	Tools         []Tool    `json:"tools"` // sorted by name
	ServerName    string    `json:"serverName,omitempty"`
	ServerVersion string    `json:"serverVersion,omitempty"`
	ListedAt      time.Time `json:"listedAt"`
}

// HashOptions says what counts towards a hash, and how much is too much.
type HashOptions struct {
	IncludeMeta bool // count `_meta` and `icons` of the tools too
	MaxTools    int  // 0: no limit
}

// HashTools makes a [Toolset] of the tools that a server listed, in any order.
//
// The hash is the SHA-256 of the RFC 8785 form of the array of all tools, sorted by the bytes of their names; the digest of
// a tool is that of its own form. Before that `_meta` and `icons` are left out, unless they are asked for, and in
// inputSchema and outputSchema the keywords whose order has no meaning (`required`, arrays of `type`, the lists of
// `dependentRequired`) are sorted. Everything else counts, members that no specification knows too. Where a value has no
// RFC 8785 form, or where that form would make different values equal, it is taken as it was sent: repeated members,
// strings that aren't Unicode, numbers beyond what a double holds.
//
// The error is an [*Error] with [ReasonInvalid], [ReasonDuplicateName] or [ReasonTooMany].
func HashTools(raw []json.RawMessage, o HashOptions) (Toolset, error) {
	if o.MaxTools > 0 && len(raw) > o.MaxTools {
		return Toolset{}, failure(ProbeList, ReasonTooMany, "the server lists %d tools, more than the limit of %d", len(raw), o.MaxTools)
	}
	type entry struct {
		Tool
		canonical []byte
	}
	entries := make([]entry, 0, len(raw))
	for i, r := range raw {
		name, n, err := parseTool(r, o)
		if err != nil {
			return Toolset{}, failure(ProbeList, ReasonInvalid, "tool %d of the list: %w", i+1, err)
		}
		form := n.canonical()
		sum := sha256.Sum256(form)
		entries = append(entries, entry{Tool{Name: name, Digest: hex.EncodeToString(sum[:]), Raw: r}, form})
	}
	slices.SortFunc(entries, func(x, y entry) int { return cmp.Compare(x.Name, y.Name) })

	ts := Toolset{Tools: make([]Tool, 0, len(entries))}
	h := sha256.New()
	h.Write([]byte{'['})
	for i, e := range entries {
		if i > 0 {
			if e.Name == entries[i-1].Name {
				return Toolset{}, failure(ProbeList, ReasonDuplicateName, "the server lists two tools named %s", strconv.Quote(shorten(e.Name)))
			}
			h.Write([]byte{','})
		}
		h.Write(e.canonical)
		ts.Tools = append(ts.Tools, e.Tool)
	}
	h.Write([]byte{']'})
	ts.Hash = "sha256:" + hex.EncodeToString(h.Sum(nil))
	return ts, nil
}

// parseTool reads a tool and leaves out what doesn't count.
func parseTool(raw json.RawMessage, o HashOptions) (name string, tool node, err error) {
	tool, err = parseNode(raw)
	if err != nil {
		return "", node{}, err
	}
	if tool.kind != '{' {
		return "", node{}, errNoTool
	}
	id := tool.member("name")
	if id == nil || id.kind != '"' {
		return "", node{}, errNoName
	}
	name = id.str // before members move
	if !o.IncludeMeta {
		tool.remove("_meta", "icons")
	}
	for i := range tool.members {
		if n := tool.members[i].name.str; n == "inputSchema" || n == "outputSchema" {
			sortSets(&tool.members[i].value)
		}
	}
	return name, tool, nil
}

// names returns the names of the tools, sorted.
func (t *Toolset) names() []string {
	names := make([]string, len(t.Tools))
	for i := range t.Tools {
		names[i] = t.Tools[i].Name
	}
	return names
}

// lacks reports whether one of the names, which are sorted, isn't among the tools.
func (t *Toolset) lacks(names []string) bool {
	for _, name := range names {
		if _, ok := slices.BinarySearchFunc(t.Tools, name, func(tool Tool, name string) int { return cmp.Compare(tool.Name, name) }); !ok {
			return true
		}
	}
	return false
}

// shorten cuts text from outside to a length that fits a message.
func shorten(s string) string {
	const limit = 120
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
