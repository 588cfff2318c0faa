package conversation

import (
	"fmt"
	"strings"
)

// maxIDLength is the length of the longest accepted ID, in bytes.
const maxIDLength = 128

// maxNameLength is the length of the longest accepted name of a server or an agent server, in bytes.
const maxNameLength = 63

// ID names a conversation as its agent server does, in canonical form. See ParseID.
type ID string

// ParseID returns the canonical form of a conversation id. UUIDs, dashed or as 32 hexadecimal digits, become lower-case and dashed, since
// agent servers use both spellings for one conversation; any other id is 1 to 128 of the characters A-Z a-z 0-9 . _ - and is neither "." nor
// "..", so that it is one path segment that needs no escaping. The error wraps ErrInvalid.
func ParseID(s string) (ID, error) {
	if id, ok := parseUUID(s); ok {
		return id, nil
	}
	switch {
	case s == "":
		return "", fmt.Errorf("%w conversation id: it is empty", ErrInvalid)
	case len(s) > maxIDLength:
		return "", fmt.Errorf("%w conversation id: it has more than %d characters", ErrInvalid, maxIDLength)
	case s == "." || s == "..":
		return "", fmt.Errorf("%w conversation id: %q is a path, not an id", ErrInvalid, s)
	}
	for i := range len(s) {
		if !idByte(s[i]) {
			return "", fmt.Errorf("%w conversation id: only A-Z, a-z, 0-9, '.', '_' and '-' are allowed", ErrInvalid)
		}
	}
	return ID(s), nil
}

// ValidateName reports whether name can be that of a server or an agent server: it appears in URLs, metric labels and files. The error wraps
// ErrInvalid.
func ValidateName(name string) error {
	if name == "" || len(name) > maxNameLength || name == "." || name == ".." {
		return fmt.Errorf("%w name %.70q: it must have 1 to %d characters", ErrInvalid, name, maxNameLength)
	}
	for i := range len(name) {
		if !idByte(name[i]) {
			return fmt.Errorf("%w name %q: only A-Z, a-z, 0-9, '.', '_' and '-' are allowed", ErrInvalid, name)
		}
	}
	return nil
}

func idByte(b byte) bool {
	return b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9' || b == '.' || b == '_' || b == '-'
}

// parseUUID accepts 32 hexadecimal digits, bare or in groups of 8-4-4-4-12.
func parseUUID(s string) (ID, bool) {
	switch len(s) {
	case 32:
	case 36:
		if s[8] != '-' || s[13] != '-' || s[18] != '-' || s[23] != '-' {
			return "", false
		}
		s = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	default:
		return "", false
	}
	s = strings.ToLower(s)
	for i := range len(s) {
		if b := s[i]; (b < '0' || b > '9') && (b < 'a' || b > 'f') {
			return "", false
		}
	}
	return ID(s[:8] + "-" + s[8:12] + "-" + s[12:16] + "-" + s[16:20] + "-" + s[20:]), true
}
