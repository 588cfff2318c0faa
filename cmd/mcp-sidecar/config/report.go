package config

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/token"
)

// Problem is one mistake in the configuration and where it was made.
type Problem struct {
	// File, Line and Column are set when the mistake stands in the file.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Origin is the flag or the environment variable that brought the value,
	// when it wasn't the file.
	Origin  string `json:"origin,omitempty"`
	Key     string `json:"key,omitempty"`
	Message string `json:"message"`
}

// String returns place, key and message on one line.
func (p Problem) String() string {
	var b strings.Builder
	switch {
	case p.Line > 0:
		fmt.Fprintf(&b, "%s:%d:%d: ", p.File, p.Line, p.Column)
	case p.Origin != "":
		b.WriteString(p.Origin + ": ")
	case p.File != "":
		b.WriteString(p.File + ": ")
	}
	if p.Key != "" && p.File != "" {
		b.WriteString(p.Key + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Error is a configuration with mistakes: all of them.
type Error struct {
	Problems []Problem
}

// Error implements error, with one line for each problem.
func (e *Error) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// report collects problems and knows where each key was set.
type report struct {
	file     string
	places   map[string]token.Position // by key
	origins  map[string]string         // by key: the flag or variable that set it
	aliases  map[string]string         // entries that a shorthand made: the shorthand's key
	bad      map[string]bool           // keys that have a problem already
	unread   map[string]bool           // keys of mappings of which something wasn't understood
	problems []Problem
}

func newReport(file string) *report {
	return &report{
		file: file, places: map[string]token.Position{}, origins: map[string]string{}, aliases: map[string]string{},
		bad: map[string]bool{}, unread: map[string]bool{},
	}
}

// place notes where a key stands in the file.
func (r *report) place(key string, at *token.Token) {
	if at != nil && at.Position != nil {
		r.places[key] = *at.Position
	}
}

// isSet tells whether the file or an override sets the key.
func (r *report) isSet(key string) bool {
	_, inFile := r.places[key]
	return inFile || r.origins[key] != ""
}

// alias says that the entry was made by a shorthand, which is what people wrote
// and what its problems are reported for.
func (r *report) alias(entry, shorthand string) { r.aliases[entry] = shorthand }

// written returns the key that people wrote to set key.
func (r *report) written(key string) string {
	for k := key; k != ""; k = parent(k) {
		if shorthand, ok := r.aliases[k]; ok {
			return shorthand
		}
	}
	return key
}

// add reports a problem at the place where key, or what contains it, was set.
// A key that has a problem already gets no second one.
func (r *report) add(key, format string, args ...any) {
	key = r.written(key)
	if r.bad[key] {
		return
	}
	r.bad[key] = true
	p := Problem{File: r.file, Key: key, Message: fmt.Sprintf(format, args...)}
	for k := key; ; k = parent(k) {
		if o := r.origins[k]; o != "" {
			p.File, p.Origin = "", o
			break
		}
		if pos, ok := r.places[k]; ok {
			p.Line, p.Column = pos.Line, pos.Column
			break
		}
		if k == "" {
			break
		}
	}
	r.problems = append(r.problems, p)
}

// missing reports that a key isn't there, unless its mapping holds something
// that wasn't understood: that is most likely the same mistake.
func (r *report) missing(key, message string) {
	if !r.unread[parent(key)] {
		r.add(key, "%s", message)
	}
}

func (r *report) addAt(at *token.Token, key, format string, args ...any) {
	r.place(key, at)
	delete(r.bad, key)
	r.add(key, format, args...)
}

func (r *report) addUnknown(at *token.Token, path, key string, known map[string]field) {
	r.unread[path] = true
	full := join(path, clip(key))
	r.place(full, at)
	hint := ""
	if s := nearest(key, known); s != "" {
		hint = fmt.Sprintf(", did you mean %q?", s)
	}
	r.add(full, "unknown key%s", hint)
}

func (r *report) addSyntax(err error) {
	r.unread[""] = true
	p := Problem{File: r.file, Message: "not YAML: " + strings.TrimSpace(err.Error())}
	if ye, ok := errors.AsType[yaml.Error](err); ok {
		p.Message = "not YAML: " + ye.GetMessage()
		if t := ye.GetToken(); t != nil && t.Position != nil {
			p.Line, p.Column = t.Position.Line, t.Position.Column
		}
	}
	r.problems = append(r.problems, p)
}

// err returns what was found, in the order of the file.
func (r *report) err() error {
	if len(r.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return &Error{Problems: r.problems}
}

// parent returns the key of what contains key: a.b[0].c, a.b[0], a.b, a.
func parent(key string) string {
	i := strings.LastIndexAny(key, ".[")
	if i < 0 {
		return ""
	}
	return key[:i]
}

// nearest returns the known key that key was probably meant to be.
func nearest(key string, known map[string]field) string {
	if len(key) > 40 {
		return ""
	}
	plain := squash(key)
	best, bestDist := "", min(3, len(plain)/2+1) // two slips at most, fewer in a short key
	for k := range known {
		d := distance(plain, squash(k))
		if d < bestDist || d == bestDist && best != "" && k < best {
			best, bestDist = k, d
		}
	}
	return best
}

// squash drops what people spell differently: case, dashes, underscores.
func squash(s string) string {
	return strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(s))
}

// distance is the Levenshtein distance.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diag := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diag
			if a[i] != b[j] {
				cost++
			}
			diag = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
