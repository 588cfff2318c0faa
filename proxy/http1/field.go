package http1

import (
	"net/textproto"
	"strings"
)

// meaning is what a field of a request has to do with the connection.
type meaning uint8

const (
	plain       meaning = iota // nothing
	hostField                  // names the host
	lengthField                // tells the length of the body
	keepField                  // Connection: keep-alive
	closeField                 // Connection: close
	oddField                   // something that is left to net/http
)

// field is a field line of a request.
type field struct {
	raw         string // as it came
	name, value string // the name in canonical form
	meaning     meaning
}

// parseField reads a field line without its end (RFC 9112 section 5). What isn't
// in the form that everybody writes and reads alike is odd.
func parseField(raw string) field {
	f := field{raw: raw, meaning: oddField}

	colon := strings.IndexByte(raw, ':')
	if colon <= 0 || !isToken(raw[:colon]) {
		return f
	}

	value := strings.Trim(raw[colon+1:], " \t")
	if !isText(value) {
		return f
	}

	f.name, f.value = textproto.CanonicalMIMEHeaderKey(raw[:colon]), value
	f.meaning = meaningOf(f.name, value)

	return f
}

func meaningOf(name, value string) meaning {
	switch name {
	case "Host":
		if isHost(value) {
			return hostField
		}

		return oddField
	case "Content-Length":
		if isLength(value) {
			return lengthField
		}

		return oddField
	case "Connection":
		switch {
		case strings.EqualFold(value, "keep-alive"):
			return keepField
		case strings.EqualFold(value, "close"):
			return closeField
		}

		return oddField
	case "Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Te", "Keep-Alive", "Proxy-Connection", "Pragma":
		return oddField
	}

	return plain
}

// maxLengthDigits keeps the length of a body within an int64.
const maxLengthDigits = 18

func isLength(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}

	return s != "" && len(s) <= maxLengthDigits
}

// isHost reports whether s is a host and perhaps a port as they are ordinarily
// written.
func isHost(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("-._:[]", c) < 0:
			return false
		}
	}

	return s != ""
}

// isToken reports whether s is a token (RFC 9110 section 5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-':
		case strings.IndexByte("!#$%&'*+.^_`|~", c) < 0:
			return false
		}
	}

	return s != ""
}

// isText reports whether s may be the value of a field: it has no control bytes but
// tabs (RFC 9110 section 5.5).
func isText(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' && s[i] != '\t' || s[i] == 0x7f {
			return false
		}
	}

	return true
}

// isTarget reports whether s is a path, perhaps with a query (RFC 9112 section
// 3.2.1).
func isTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}

	return s != "" && s[0] == '/'
}
