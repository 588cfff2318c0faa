package health

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// node is a JSON value that can be rearranged before it is written in the form of RFC 8785.
type node struct {
	kind    jsontext.Kind // one of { [ " 0 t f n
	text    []byte        // a scalar as it is written
	str     string        // a string, decoded; the text itself where it isn't valid Unicode
	members []member      // of an object, in the order they were sent
	elems   []node        // of an array
}

type member struct {
	name  node // a string
	value node
}

// parseNode reads one JSON value.
//
// RFC 8785 is defined for I-JSON only. What lies outside of it must still hash in a stable way, and an edit must still
// show, so it is kept as it was sent instead of being refused or folded together: members with the same name stay in
// their order, a string that isn't valid Unicode (a lone surrogate, bad UTF-8) keeps its bytes, and a number keeps its
// digits where a double can't hold it.
func parseNode(raw []byte) (node, error) {
	d := jsontext.NewDecoder(bytes.NewReader(raw), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	n, err := readNode(d)
	if err != nil {
		return node{}, err
	}
	switch _, err := d.ReadToken(); {
	case errors.Is(err, io.EOF):
		return n, nil
	case err != nil:
		return node{}, err
	default:
		return node{}, errors.New("more than one JSON value")
	}
}

func readNode(d *jsontext.Decoder) (node, error) {
	n := node{kind: d.PeekKind()}
	switch n.kind {
	case '{':
		if _, err := d.ReadToken(); err != nil {
			return node{}, err
		}
		for d.PeekKind() != '}' {
			name, err := readNode(d)
			if err != nil {
				return node{}, err
			}
			value, err := readNode(d)
			if err != nil {
				return node{}, err
			}
			n.members = append(n.members, member{name, value})
		}
		_, err := d.ReadToken()
		return n, err
	case '[':
		if _, err := d.ReadToken(); err != nil {
			return node{}, err
		}
		for d.PeekKind() != ']' {
			elem, err := readNode(d)
			if err != nil {
				return node{}, err
			}
			n.elems = append(n.elems, elem)
		}
		_, err := d.ReadToken()
		return n, err
	default:
		raw, err := d.ReadValue()
		if err != nil {
			return node{}, err
		}
		switch n.kind {
		case '"':
			n.text, n.str = canonicalString(raw)
		case '0':
			n.text = canonicalNumber(raw)
		default:
			n.text = bytes.Clone(raw)
		}
		return n, nil
	}
}

func canonicalString(raw []byte) (text []byte, str string) {
	if bytes.IndexByte(raw, '\\') < 0 && utf8.Valid(raw) {
		return bytes.Clone(raw), string(raw[1 : len(raw)-1]) // most are canonical already
	}
	plain, err := jsontext.AppendUnquote(nil, raw)
	if err != nil {
		return bytes.Clone(raw), string(raw)
	}
	text, err = jsontext.AppendQuote(nil, plain)
	if err != nil {
		return bytes.Clone(raw), string(raw)
	}
	return text, string(plain)
}

// canonicalNumber writes a number as ECMAScript would, except that an integer keeps all of its digits and a number that is
// too large for a double is left alone: RFC 8785 would make 9007199254740993 and 9007199254740992 the same.
func canonicalNumber(raw []byte) []byte {
	if bytes.IndexFunc(raw, func(r rune) bool { return r < '0' || r > '9' }) < 0 {
		return bytes.Clone(raw)
	}
	var f float64
	if err := json.Unmarshal(raw, &f); err != nil {
		return bytes.Clone(raw)
	}
	v := jsontext.Value(bytes.Clone(raw))
	if err := v.Canonicalize(jsontext.CanonicalizeRawInts(false)); err != nil {
		return bytes.Clone(raw)
	}
	return v
}

// appendCanonical writes n in the form of RFC 8785.
func (n *node) appendCanonical(b []byte) []byte {
	switch n.kind {
	case '{':
		order := slices.Clone(n.members)
		slices.SortStableFunc(order, func(x, y member) int { return compareUTF16(x.name.str, y.name.str) })
		b = append(b, '{')
		for i := range order {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, order[i].name.text...)
			b = append(b, ':')
			b = order[i].value.appendCanonical(b)
		}
		return append(b, '}')
	case '[':
		b = append(b, '[')
		for i := range n.elems {
			if i > 0 {
				b = append(b, ',')
			}
			b = n.elems[i].appendCanonical(b)
		}
		return append(b, ']')
	default:
		return append(b, n.text...)
	}
}

// canonical returns n in the form of RFC 8785.
func (n *node) canonical() []byte { return n.appendCanonical(nil) }

// member returns the value of the named member of an object, or nil. As in most readers the last of several wins.
func (n *node) member(name string) *node {
	for i := len(n.members) - 1; i >= 0; i-- {
		if n.members[i].name.str == name {
			return &n.members[i].value
		}
	}
	return nil
}

// remove drops every member with one of these names.
func (n *node) remove(names ...string) {
	n.members = slices.DeleteFunc(n.members, func(m member) bool { return slices.Contains(names, m.name.str) })
}

// compareUTF16 compares by UTF-16 code units, as RFC 8785 section 3.2.3 wants it. It differs from the order of bytes where
// a character beyond U+FFFF meets one from U+E000 to U+FFFF.
func compareUTF16(x, y string) int {
	for x != "" && y != "" {
		rx, nx := utf8.DecodeRuneInString(x)
		ry, ny := utf8.DecodeRuneInString(y)
		if rx != ry || nx != ny {
			return cmp.Or(cmp.Compare(firstUnit(rx), firstUnit(ry)), cmp.Compare(rx, ry), cmp.Compare(x, y))
		}
		x, y = x[nx:], y[ny:]
	}
	return cmp.Compare(len(x), len(y))
}

func firstUnit(r rune) rune {
	if hi, _ := utf16.EncodeRune(r); hi != utf8.RuneError {
		return hi
	}
	return r
}
