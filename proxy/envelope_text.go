package proxy

import (
	"unicode/utf16"
	"unicode/utf8"
)

// unescape appends the content of a string (without its quotes, known to be
// well formed) to dst. Half a surrogate pair becomes U+FFFD.
func unescape(dst, content []byte) []byte {
	for i := 0; i < len(content); {
		c := content[i]
		if c != '\\' {
			dst = append(dst, c)
			i++
			continue
		}
		switch c := content[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, _ := hex4(content[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				low := rune(-1)
				if i+6 <= len(content) && content[i] == '\\' && content[i+1] == 'u' {
					low, _ = hex4(content[i+2:])
				}
				if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
					i += 6
				}
			}
			dst = utf8.AppendRune(dst, r)
			continue
		default:
			dst = append(dst, c)
		}
		i += 2
	}
	return dst
}

// text decodes a raw JSON string; anything else is "".
func text(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", nil
	}
	content := raw[1 : len(raw)-1]
	ascii := true
	for _, c := range content {
		if c == '\\' || c >= utf8.RuneSelf {
			ascii = false
			break
		}
	}
	if ascii {
		return string(content), nil
	}
	if !utf8.Valid(content) {
		return "", errEncoding
	}
	return string(unescape(nil, content)), nil
}

// match finds a key among names: the bit of its position, and whether it is
// spelled exactly so or only looks alike; 0 when it is none of them.
func match(key []byte, names ...string) (bit uint32, exact bool) {
	for i, name := range names {
		if string(key) == name {
			return 1 << i, true
		}
	}
	for i, name := range names {
		if alike(key, name) {
			return 1 << i, false
		}
	}
	return 0, false
}

// alike reports whether some decoder that ignores case takes key for the ASCII
// name: equal under Unicode simple folding (which knows the long s and the
// Kelvin sign), or under the upper-casing of the two Turkish letters i.
func alike(key []byte, name string) bool {
	if len(key) < len(name) {
		return false
	}
	for i := range len(name) {
		if len(key) == 0 {
			return false
		}
		c, n := rune(key[0]), 1
		if c >= utf8.RuneSelf {
			c, n = utf8.DecodeRune(key)
			switch c {
			case 'ſ':
				c = 's'
			case 'K':
				c = 'k'
			case 'İ', 'ı':
				c = 'i'
			}
		}
		if lower(c) != lower(rune(name[i])) {
			return false
		}
		key = key[n:]
	}
	return len(key) == 0
}

func lower(c rune) rune {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// methodName decodes a method without allocating for the usual ones.
func methodName(content []byte) (string, error) {
	switch string(content) {
	case "tools/call":
		return "tools/call", nil
	case "tools/list":
		return "tools/list", nil
	case "initialize":
		return "initialize", nil
	case "notifications/initialized":
		return "notifications/initialized", nil
	case "notifications/cancelled":
		return "notifications/cancelled", nil
	case "notifications/progress":
		return "notifications/progress", nil
	case "ping":
		return "ping", nil
	case "resources/read":
		return "resources/read", nil
	case "prompts/get":
		return "prompts/get", nil
	}
	if !utf8.Valid(content) {
		return "", errEncoding
	}
	return string(unescape(nil, content)), nil
}
