package proxy

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// setListChanged makes a raw InitializeResult or DiscoverResult declare
// capabilities.tools.listChanged, and reports whether it had to edit. Both
// results keep the capability in the same place (MCP 2025-11-25 "Lifecycle",
// 2026-07-28 "Discovery"). Every other byte stays as it was; a server without a
// tools capability is left alone.
func setListChanged(result []byte) ([]byte, bool) {
	return setTrue(result, "capabilities", "tools", "listChanged")
}

// setTrue sets the boolean member at path to true in a raw JSON object whose
// objects on the way exist, and reports whether it had to edit. The input is
// never modified. A path that is ambiguous (a name appears twice) or blocked by
// another type is left alone.
func setTrue(object []byte, path ...string) ([]byte, bool) {
	s := scanner{b: object}
	for _, name := range path[:len(path)-1] {
		v, ok := s.find(name)
		if !ok {
			return object, false
		}
		s = scanner{b: object, i: v.start}
	}
	if s.peek() != '{' {
		return object, false
	}
	name := path[len(path)-1]
	inside := s.i + 1
	n, empty, v := s.count(name)
	switch {
	case n > 1 || n < 0:
		return object, false
	case n == 1:
		if string(v.of(object)) == "true" {
			return object, false
		}
		return splice(object, v, []byte("true")), true
	}
	member := append(strconv.AppendQuote(nil, name), ":true"...)
	if !empty {
		member = append(member, ',')
	}
	return splice(object, span{inside, inside}, member), true
}

// count tells how often name appears in the object at i (-1: broken JSON),
// whether the object is empty, and where the last value of that name is.
func (s *scanner) count(name string) (n int, empty bool, last span) {
	s.open()
	for empty = true; ; empty = false {
		key, more, err := s.key()
		if err != nil {
			return -1, false, span{}
		}
		if !more {
			return n, empty, last
		}
		hit := string(key) == name
		_, v, err := s.value()
		if err != nil {
			return -1, false, span{}
		}
		if hit {
			n++
			last = v
		}
	}
}

// splice returns a copy of b in which the bytes of at are replaced.
func splice(b []byte, at span, by []byte) []byte {
	return slices.Concat(b[:at.start], by, b[at.end:])
}

// withListChanged does setListChanged for the result inside a whole JSON-RPC
// response.
func withListChanged(response []byte) ([]byte, bool) {
	s := scanner{b: response}
	at, ok := s.find("result")
	if !ok {
		return response, false
	}
	result, ok := setListChanged(at.of(response))
	if !ok {
		return response, false
	}
	return splice(response, at, result), true
}

// withID returns a copy of a single JSON-RPC message with another (raw) id, and
// false when the message has none to replace.
func withID(body, id []byte) ([]byte, bool) {
	s := scanner{b: body}
	at, ok := s.find("id")
	if !ok {
		return body, false
	}
	return splice(body, at, id), true
}

// errorBody builds a JSON-RPC error response. A nil id is written as null; data
// is left out when nil, and must marshal.
func errorBody(id []byte, code int, text string, data any) []byte {
	type rpcError struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
		Data    any    `json:"data,omitempty"`
	}
	if id == nil {
		id = []byte("null")
	}
	e, err := json.Marshal(rpcError{code, text, data})
	if err != nil { // only data can fail: the error itself must still get out
		e, _ = json.Marshal(rpcError{Code: code, Message: text})
	}
	return slices.Concat([]byte(`{"jsonrpc":"2.0","id":`), id, []byte(`,"error":`), e, []byte("}"))
}

// idKey returns a form of a raw id under which equal ids are equal strings,
// however they are spelled: backends re-encode the ids that they echo ("\u0061"
// is "a", 1.0 is 1). Strings and numbers never share a key.
func idKey(raw []byte) string {
	if len(raw) == 0 {
		return ""
	}
	if raw[0] == '"' {
		s, err := text(raw)
		if err != nil {
			return string(raw)
		}
		return "s" + s
	}
	key := string(raw)

	if strings.ContainsAny(key, ".eE") {
		if f, err := strconv.ParseFloat(key, 64); err == nil {
			key = strconv.FormatFloat(f, 'f', -1, 64)
		}
	}

	if key == "-0" {
		key = "0"
	}

	return "n" + key
}
