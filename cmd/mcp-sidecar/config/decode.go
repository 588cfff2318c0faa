package config

import (
	"encoding"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// decoder reads one YAML document into structs. Unlike the decoder of the
// YAML package it goes on after a mistake, so that all of them are reported,
// and it remembers where each key stands, for the mistakes that only
// validation can see.
type decoder struct {
	dir      string // what relative file names are relative to
	anchors  map[string]ast.Node
	merging  map[ast.Node]bool // what is being merged, since it may name itself
	report   *report
	newEntry map[reflect.Type]reflect.Value // what an entry of a list begins with
}

// decode reads data, the content of the file, into c.
func decode(data []byte, dir string, c *Config, r *report) {
	f, err := parser.ParseBytes(data, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.addSyntax(err)
		return
	}
	d := &decoder{dir: dir, anchors: map[string]ast.Node{}, merging: map[ast.Node]bool{}, report: r, newEntry: map[reflect.Type]reflect.Value{
		reflect.TypeFor[Server]():      reflect.ValueOf(defaultServer()),
		reflect.TypeFor[AgentServer](): reflect.ValueOf(defaultAgentServer()),
	}}
	var docs []*ast.DocumentNode
	for _, doc := range f.Docs {
		if doc.Body != nil && doc.Body.Type() != ast.CommentType {
			docs = append(docs, doc)
		}
	}
	switch {
	case len(docs) == 0:
		r.unread[""] = true
		r.add("", "the file is empty: a file that was cut short looks like this, so it is not taken for one that changes nothing")
		return
	case len(docs) > 1:
		r.unread[""] = true
		r.addAt(docs[1].Body.GetToken(), "", "a second YAML document: put everything into one")
		return
	}
	ast.Walk(anchorCollector(d.anchors), docs[0].Body)
	d.value(docs[0].Body, reflect.ValueOf(c).Elem(), "", false)
}

// anchorCollector notes every anchor of a document.
type anchorCollector map[string]ast.Node

// Visit implements [ast.Visitor].
func (c anchorCollector) Visit(n ast.Node) ast.Visitor {
	if a, ok := n.(*ast.AnchorNode); ok && a.Name != nil {
		c[a.Name.GetToken().Value] = a.Value
	}
	return c
}

// resolve strips tags and anchors and follows aliases.
func (d *decoder) resolve(n ast.Node) ast.Node {
	for range 16 { // an alias may stand for an alias, but not for ever
		switch t := n.(type) {
		case *ast.AnchorNode:
			n = t.Value
		case *ast.TagNode:
			n = t.Value
		case *ast.AliasNode:
			target, ok := d.anchors[t.Value.GetToken().Value]
			if !ok {
				return n
			}
			n = target
		default:
			return n
		}
	}
	return n
}

// value decodes one node into v, whose key is path. Anything but a node of the
// wanted kind is a problem; a null leaves the default.
func (d *decoder) value(n ast.Node, v reflect.Value, path string, isPath bool) {
	at := n.GetToken()
	n = d.resolve(n)
	if n == nil || n.Type() == ast.NullType {
		return
	}
	if v.Kind() == reflect.Struct && !isScalar(v.Type()) {
		d.mapping(n, at, v, path)
		return
	}
	if v.Kind() == reflect.Map {
		d.texts(n, at, v, path)
		return
	}
	if v.Kind() == reflect.Slice {
		d.list(n, at, v, path, isPath)
		return
	}
	s, ok := n.(ast.ScalarNode)
	if !ok || n.Type() == ast.AliasType {
		d.report.addAt(at, path, "want %s, got %s", describe(v.Type()), nodeKind(n))
		return
	}
	if err := d.scalar(s, v, isPath); err != nil {
		d.report.addAt(at, path, "%s", err)
	}
}

func (d *decoder) mapping(n ast.Node, at *token.Token, v reflect.Value, path string) {
	entries, ok := mappingEntries(n)
	if !ok {
		d.report.unread[path] = true
		d.report.addAt(at, path, "want keys and values, got %s", nodeKind(n))
		return
	}
	for _, e := range entries { // merged keys first: the mapping's own win
		if e.Key.IsMergeKey() {
			d.merge(e.Value, v, path)
		}
	}
	fields := fieldsOf(v.Type())
	seen := map[string]bool{}
	for _, e := range entries {
		if e.Key.IsMergeKey() {
			continue
		}
		at := e.Key.GetToken()
		key := at.Value
		full := join(path, key)
		f, known := fields[key]
		switch {
		case !known:
			d.report.addUnknown(at, path, key, fields)
		case seen[key]:
			d.report.addAt(at, full, "the key is there twice: remove one")
		default:
			d.report.place(full, at)
			d.value(e.Value, v.Field(f.index), full, f.isPath)
		}
		seen[key] = true
	}
}

func (d *decoder) merge(n ast.Node, v reflect.Value, path string) {
	at := n.GetToken()
	n = d.resolve(n)
	if d.merging[n] {
		d.report.addAt(at, path, "the merged value contains itself")
		return
	}
	d.merging[n] = true
	defer delete(d.merging, n)
	if seq, ok := n.(*ast.SequenceNode); ok {
		for _, item := range slices.Backward(seq.Values) { // of several, the first wins
			d.mapping(d.resolve(item), item.GetToken(), v, path)
		}
		return
	}
	d.mapping(n, at, v, path)
}

// list decodes a sequence, or for a list of texts a single one.
func (d *decoder) list(n ast.Node, at *token.Token, v reflect.Value, path string, isPath bool) {
	seq, ok := n.(*ast.SequenceNode)
	if !ok {
		if _, isText := n.(ast.ScalarNode); isText && v.Type().Elem().Kind() == reflect.String {
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			d.value(n, v.Index(0), path, isPath)
			return
		}
		d.report.addAt(at, path, "want a list, got %s", nodeKind(n))
		return
	}
	v.Set(reflect.MakeSlice(v.Type(), len(seq.Values), len(seq.Values)))
	for i, item := range seq.Values {
		full := fmt.Sprintf("%s[%d]", path, i)
		d.report.place(full, itemToken(item))
		if entry, ok := d.newEntry[v.Type().Elem()]; ok {
			v.Index(i).Set(entry)
		}
		d.value(item, v.Index(i), full, isPath)
	}
}

// texts decodes names and their texts.
func (d *decoder) texts(n ast.Node, at *token.Token, v reflect.Value, path string) {
	all, ok := mappingEntries(n)
	if !ok {
		d.report.addAt(at, path, "want names and values, got %s", nodeKind(n))
		return
	}
	v.Set(reflect.MakeMap(v.Type()))
	for _, e := range all {
		at := e.Key.GetToken()
		full := join(path, at.Value)
		d.report.place(full, at)
		if v.MapIndex(reflect.ValueOf(at.Value)).IsValid() {
			d.report.addAt(at, full, "the key is there twice: remove one")
			continue
		}
		text := reflect.New(v.Type().Elem()).Elem()
		d.value(e.Value, text, full, false)
		v.SetMapIndex(reflect.ValueOf(at.Value), text)
	}
}

// scalar decodes one plain value.
func (d *decoder) scalar(n ast.ScalarNode, v reflect.Value, isPath bool) error {
	text, isText := scalarText(n)
	switch p := v.Addr().Interface().(type) {
	case *time.Duration:
		if !isText {
			if text != "0" {
				return errors.New(`want a duration with its unit, such as "25s"`)
			}
		}
		x, err := time.ParseDuration(text)
		if err != nil {
			return fmt.Errorf(`want a duration such as "25s" or "1m30s", got %q`, clip(text))
		}
		*p = x
		return nil
	case **url.URL:
		u, err := parseURL(text)
		if err != nil {
			return err
		}
		*p = u
		return nil
	case encoding.TextUnmarshaler:
		if err := p.UnmarshalText([]byte(text)); err != nil {
			return fmt.Errorf("want %s, got %q", describe(v.Type()), clip(text))
		}
		return nil
	case *string:
		if !isText {
			return fmt.Errorf("want a text, got %s: put it in quotes", nodeKind(n))
		}
		if isPath && text != "" && !filepath.IsAbs(text) {
			text = filepath.Join(d.dir, text)
		}
		*p = text
		return nil
	}
	if err := yaml.NodeToValue(n, v.Addr().Interface()); err != nil || isText {
		return fmt.Errorf("want %s, got %q", describe(v.Type()), clip(text))
	}
	return nil
}

// parseURL is [url.Parse] with an error that doesn't repeat the URL, which may
// hold a credential.
func parseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err
		}
		return nil, fmt.Errorf("not a URL (%w): write it like http://127.0.0.1:9000/mcp", err)
	}
	return u, nil
}

type field struct {
	index  int
	isPath bool
}

// fieldsOf maps the keys of a struct to its fields.
func fieldsOf(t reflect.Type) map[string]field {
	m := make(map[string]field, t.NumField())
	for i := range t.NumField() {
		name, opt, _ := strings.Cut(t.Field(i).Tag.Get("yaml"), ",")
		m[name] = field{index: i, isPath: opt == "path"}
	}
	return m
}

func isScalar(t reflect.Type) bool {
	return reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

func mappingEntries(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch t := n.(type) {
	case *ast.MappingNode:
		return t.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{t}, true
	}
	return nil, false
}

// scalarText returns a scalar as it was written and whether it is a text, as
// opposed to a number or a boolean.
func scalarText(n ast.ScalarNode) (string, bool) {
	switch t := n.(type) {
	case *ast.StringNode:
		return t.Value, true
	case *ast.LiteralNode:
		return t.Value.Value, true
	}
	return n.GetToken().Value, false
}

// itemToken returns the first token of an entry of a list: for a mapping that
// is its first key, not the colon after it.
func itemToken(n ast.Node) *token.Token {
	if entries, ok := mappingEntries(n); ok && len(entries) > 0 {
		return entries[0].Key.GetToken()
	}
	return n.GetToken()
}

func describe(t reflect.Type) string {
	switch {
	case t == reflect.TypeFor[time.Duration]():
		return `a duration such as "25s"`
	case t == reflect.TypeFor[*url.URL]():
		return "a URL"
	case isScalar(t):
		return "one of debug, info, warn and error"
	}
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	default:
		return "a text"
	}
}

func nodeKind(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "keys and values"
	case ast.SequenceType:
		return "a list"
	case ast.BoolType:
		return "true or false"
	case ast.IntegerType, ast.FloatType, ast.InfinityType, ast.NanType:
		return "a number"
	case ast.NullType:
		return "nothing"
	case ast.AliasType:
		return "an alias of an anchor that isn't there"
	default:
		return "a text"
	}
}

func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}
