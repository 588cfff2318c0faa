package health

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"
)

// The kinds of a [Change].
const (
	ChangeAdded   = "added"
	ChangeRemoved = "removed"
	ChangeChanged = "changed"
)

// Change is what happened to one tool between two toolsets.
type Change struct {
	Tool string `json:"tool"`
	Kind string `json:"kind"` // [ChangeAdded], [ChangeRemoved] or [ChangeChanged]

	// Breaking is set if calls that were right before, or code that reads the results, may fail now. What can't be judged, such
	// as an edited "oneOf", counts as breaking.
	Breaking bool `json:"breaking"`

	// Details has one line for each difference, for people. Names from the backend are quoted, so a line is safe to print.
	Details []string `json:"details,omitempty"`
}

// Diff tells what changed from before to after, by the name of the tool. Tools with the same digest are the same.
func Diff(before, after Toolset) []Change {
	var changes []Change
	i, j := 0, 0
	for i < len(before.Tools) || j < len(after.Tools) {
		var order int
		switch {
		case i == len(before.Tools):
			order = 1
		case j == len(after.Tools):
			order = -1
		default:
			order = cmp.Compare(before.Tools[i].Name, after.Tools[j].Name)
		}
		switch {
		case order < 0:
			changes = append(changes, Change{Tool: before.Tools[i].Name, Kind: ChangeRemoved, Breaking: true})
			i++
		case order > 0:
			changes = append(changes, Change{Tool: after.Tools[j].Name, Kind: ChangeAdded})
			j++
		default:
			if before.Tools[i].Digest != after.Tools[j].Digest {
				changes = append(changes, diffTool(before.Tools[i], after.Tools[j]))
			}
			i++
			j++
		}
	}
	return changes
}

func diffTool(before, after Tool) Change {
	c := Change{Tool: after.Name, Kind: ChangeChanged}
	// With everything included: a digest that counts `_meta` may differ by that alone. What isn't readable has no digest.
	_, x, errX := parseTool(before.Raw, HashOptions{IncludeMeta: true})
	_, y, errY := parseTool(after.Raw, HashOptions{IncludeMeta: true})
	if errX != nil || errY != nil {
		c.Breaking = true
		return c
	}
	d := differ{change: &c}
	for _, name := range unionNames(&x, &y) {
		vx, vy := x.member(name), y.member(name)
		switch name {
		case "inputSchema":
			d.schema(vx, vy, place{input: true})
		case "outputSchema":
			d.output(vx, vy)
		case "annotations":
			d.annotations(vx, vy)
		default: // description, title, execution, icons, _meta and what is unknown: for readers, not for calls
			d.value(strconv.Quote(shorten(name)), vx, vy, false)
		}
	}
	return c
}

// differ collects the differences of one tool.
type differ struct{ change *Change }

func (d *differ) add(breaking bool, format string, args ...any) {
	const most = 100
	d.change.Breaking = d.change.Breaking || breaking
	if len(d.change.Details) < most {
		d.change.Details = append(d.change.Details, fmt.Sprintf(format, args...))
	}
}

// value compares what has no parts of its own here. Short values are shown.
func (d *differ) value(what string, x, y *node, breaking bool) {
	switch {
	case equal(x, y):
	case x == nil:
		d.add(breaking, "%s added%s", what, shown(": ", y))
	case y == nil:
		d.add(breaking, "%s removed", what)
	case shown("", x) != "" && shown("", y) != "":
		d.add(breaking, "%s changed from %s to %s", what, shown("", x), shown("", y))
	default:
		d.add(breaking, "%s changed", what)
	}
}

func (d *differ) annotations(x, y *node) {
	if x == nil || y == nil || x.kind != '{' || y.kind != '{' {
		d.value("annotations", x, y, false)
		return
	}
	for _, name := range unionNames(x, y) {
		d.value("annotation "+strconv.Quote(shorten(name)), x.member(name), y.member(name), false)
	}
}

func (d *differ) output(x, y *node) {
	switch {
	case x == nil:
		d.add(false, "output schema added")
	case y == nil:
		d.add(true, "output schema removed")
	default:
		d.schema(x, y, place{})
	}
}

func equal(x, y *node) bool {
	if x == nil || y == nil {
		return x == y
	}
	return bytes.Equal(x.canonical(), y.canonical())
}

// shown returns a value for a message, or "" where it is missing or too long for one.
func shown(prefix string, n *node) string {
	const longest = 40
	if n == nil {
		return ""
	}
	text := n.canonical()
	if len(text) > longest {
		return ""
	}
	if n.kind == '"' {
		return prefix + strconv.Quote(n.str)
	}
	return prefix + strconv.Quote(string(text))
}

// unionNames returns the names of the members of both, those of x first, each once.
func unionNames(x, y *node) []string {
	var names []string
	seen := map[string]bool{}
	for _, n := range []*node{x, y} {
		if n == nil {
			continue
		}
		for i := range n.members {
			if name := n.members[i].name.str; !seen[name] {
				seen[name] = true
				names = append(names, name)
			}
		}
	}
	return names
}

// index returns the members of an object by name, none for anything else.
func (n *node) index() map[string]*node {
	byName := map[string]*node{}
	if n != nil {
		for i := range n.members {
			byName[n.members[i].name.str] = &n.members[i].value
		}
	}
	return byName
}
