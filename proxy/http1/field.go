package http1

import (
	"bytes"
	"net/http"
	"net/textproto"
	"strings"
)

// Bounds on what is remembered of a connection's heads, and so on what is read here
// at all.
const (
	maxFields = 64
	maxLine   = 1 << 10
)

// Field is a field line of a head.
type Field struct {
	Name, Value string // the name in canonical form

	line string // as it came, without its end
}

// Fields are the field lines of a head. Most heads that come over a connection have
// the lines of the one before: what is the same isn't read anew. It isn't safe for
// concurrent use.
type Fields []Field

// Read reads the lines of a head, each with its end. It returns false when one of
// them isn't in the form that everybody writes and reads alike (RFC 9112 section 5),
// or when there are too many.
func (f *Fields) Read(lines []byte) bool {
	fields, n := *f, 0

	for ; len(lines) > 0; n++ {
		line, rest, ok := bytes.Cut(lines, []byte("\r\n"))
		if !ok || n == maxFields || len(line) > maxLine {
			return false
		}

		lines = rest

		if n < len(fields) && string(line) == fields[n].line {
			continue
		}

		field, ok := parseField(string(line))
		if !ok {
			return false
		}

		if n < len(fields) {
			fields[n] = field
		} else {
			fields = append(fields, field)
		}
	}

	*f = fields[:n]

	return true
}

// Header returns the lines as a header of its own.
func (f *Fields) Header() http.Header {
	h := make(http.Header, len(*f))
	values := make([]string, len(*f)) // of all fields that come once

	for i := range *f {
		field := &(*f)[i]
		values[i] = field.Value

		if before := h[field.Name]; before != nil {
			h[field.Name] = append(before, field.Value)
		} else {
			h[field.Name] = values[i : i+1 : i+1]
		}
	}

	return h
}

func parseField(line string) (Field, bool) {
	name, value, ok := strings.Cut(line, ":")
	value = strings.Trim(value, " \t")

	if !ok || !IsToken(name) || !IsValue(value) {
		return Field{}, false
	}

	return Field{textproto.CanonicalMIMEHeaderKey(name), value, line}, true
}

// maxLengthDigits keeps the length of a body within an int64.
const maxLengthDigits = 18

// IsLength reports whether s is the length of a body, written without doubt.
func IsLength(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}

	return s != "" && len(s) <= maxLengthDigits
}

// IsToken reports whether s can be a method or the name of a field (RFC 9110 section
// 5.6.2).
func IsToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
		case strings.IndexByte("!#$%&'*+.^_`|~", c) < 0:
			return false
		}
	}

	return s != ""
}

// IsValue reports whether s can be the value of a field: it has no control bytes but
// tabs (RFC 9110 section 5.5).
func IsValue(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}

	return true
}
