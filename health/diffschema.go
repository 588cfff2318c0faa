package health

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// place says where in a tool's schemas a comparison is.
type place struct {
	input bool   // inputSchema: callers write it; else outputSchema: callers read it
	path  string // of the parameter or field; "" at the root
}

func (p place) String() string {
	switch {
	case p.path == "" && p.input:
		return "input schema"
	case p.path == "":
		return "output schema"
	case p.input:
		return "parameter " + strconv.Quote(p.path)
	default:
		return "field " + strconv.Quote(p.path)
	}
}

func (p place) child(name string) place {
	name = shorten(name)
	if p.path != "" && name != "[]" {
		name = "." + name
	}
	p.path += name
	return p
}

// narrows reports whether a change towards fewer allowed values breaks something here. Fewer inputs break callers, more
// outputs break readers.
func (p place) narrows(fewer bool) bool { return fewer == p.input }

// schema compares two JSON Schemas.
func (d *differ) schema(x, y *node, at place) {
	if equal(x, y) {
		return
	}
	if x == nil || y == nil || x.kind != '{' || y.kind != '{' {
		d.value(at.String(), x, y, true)
		return
	}
	d.properties(x, y, at)
	for _, name := range unionNames(x, y) {
		vx, vy := x.member(name), y.member(name)
		if equal(vx, vy) {
			continue
		}
		what := fmt.Sprintf("%s of %s", strconv.Quote(shorten(name)), at)
		switch name {
		case "properties", "required": // see properties
		case "type":
			d.choice(what, typesOf(vx), typesOf(vy), at)
		case "enum":
			d.choice(what, literals(vx), literals(vy), at)
		case "items", "additionalItems", "contains":
			if vx != nil && vy != nil {
				d.schema(vx, vy, at.child("[]"))
			} else {
				d.value(what, vx, vy, at.narrows(vx == nil))
			}
		case "additionalProperties", "unevaluatedProperties":
			closed := func(n *node) bool { return n != nil && n.kind != 't' }
			d.value(what, vx, vy, at.narrows(closed(vy)) || closed(vx) && closed(vy))
		case "title", "description", "default", "examples", "deprecated", "$comment", "$schema", "$id", "readOnly", "writeOnly":
			d.value(what, vx, vy, false)
		default:
			// A keyword that only constrains breaks callers where it comes, readers where it goes, and maybe where it changes.
			d.value(what, vx, vy, vx != nil && vy != nil || at.narrows(vx == nil))
		}
	}
}

// properties compares the named parameters or fields, and which are required.
func (d *differ) properties(x, y *node, at place) {
	px, py := x.member("properties"), y.member("properties")
	ix, iy := px.index(), py.index()
	rx, ry := literals(x.member("required")), literals(y.member("required"))
	wasRequired, isRequired := setOf(rx), setOf(ry)
	for _, name := range unionNames(px, py) {
		vx, vy := ix[name], iy[name]
		c := at.child(name)
		was, is := wasRequired[strconv.Quote(name)], isRequired[strconv.Quote(name)]
		switch {
		case vx == nil && is:
			d.add(at.input, "required %s added", c)
		case vx == nil:
			d.add(false, "optional %s added", c)
		case vy == nil && was:
			d.add(true, "required %s removed", c)
		case vy == nil:
			d.add(true, "optional %s removed", c)
		default:
			if was != is {
				d.add(at.narrows(is), "%s is %s", c, requirement(is))
			}
			d.schema(vx, vy, c)
		}
	}
	// A name can be required without being described.
	for _, quoted := range slices.Concat(without(rx, ry), without(ry, rx)) {
		name, err := strconv.Unquote(quoted)
		if err == nil && ix[name] == nil && iy[name] == nil {
			d.add(at.narrows(isRequired[quoted]), "%s in %s is %s", shorten(quoted), at, requirement(isRequired[quoted]))
		}
	}
}

func requirement(required bool) string {
	if required {
		return "now required"
	}
	return "no longer required"
}

// choice compares lists of allowed values; nil allows everything.
func (d *differ) choice(what string, x, y []string, at place) {
	if x == nil || y == nil {
		switch {
		case y != nil:
			d.add(at.narrows(true), "%s is now %s", what, list(y))
		case x != nil:
			d.add(at.narrows(false), "%s is no longer %s", what, list(x))
		default:
			d.add(true, "%s changed", what)
		}
		return
	}
	gone, come := without(x, y), without(y, x)
	switch {
	case len(x) == 1 && len(y) == 1:
		widened := x[0] == `"integer"` && y[0] == `"number"`
		narrowed := x[0] == `"number"` && y[0] == `"integer"`
		d.add(!widened && !narrowed || at.narrows(narrowed), "%s changed from %s to %s", what, list(x), list(y))
	case len(gone) == 0 && len(come) == 0:
		d.add(false, "%s is in another order", what)
	default:
		if len(gone) > 0 {
			d.add(at.narrows(true), "%s lost %s", what, list(gone))
		}
		if len(come) > 0 {
			d.add(at.narrows(false), "%s gained %s", what, list(come))
		}
	}
}

// typesOf returns the types that a "type" keyword names, quoted.
func typesOf(n *node) []string {
	if n != nil && n.kind == '"' {
		return []string{strconv.Quote(n.str)}
	}
	return literals(n)
}

// literals returns the elements of an array for messages: strings quoted, the rest as JSON. It returns nil for anything else.
func literals(n *node) []string {
	if n == nil || n.kind != '[' {
		return nil
	}
	texts := make([]string, len(n.elems))
	for i := range n.elems {
		if e := &n.elems[i]; e.kind == '"' {
			texts[i] = strconv.Quote(e.str)
		} else {
			texts[i] = string(e.canonical())
		}
	}
	return texts
}

func without(x, y []string) []string {
	drop := setOf(y)
	return slices.DeleteFunc(slices.Clone(x), func(s string) bool { return drop[s] })
}

func setOf(values []string) map[string]bool {
	in := make(map[string]bool, len(values))
	for _, v := range values {
		in[v] = true
	}
	return in
}

func list(values []string) string {
	const most = 8
	cut := make([]string, 0, most+1)
	for i, v := range values {
		if i == most {
			cut = append(cut, "…")
			break
		}
		cut = append(cut, shorten(v))
	}
	return strings.Join(cut, ", ")
}
