package agentserver

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strings"
)

// ID is the id of a conversation: a UUID in lower-case dashed form.
type ID string

// ParseID reads a UUID, dashed or as 32 hex digits, in either case.
func ParseID(s string) (ID, error) {
	digits := s
	if len(s) == 36 && s[8] == '-' && s[13] == '-' && s[18] == '-' && s[23] == '-' {
		digits = s[:8] + s[9:13] + s[14:18] + s[19:23] + s[24:]
	}
	var b [16]byte
	if len(digits) != 32 {
		return "", fmt.Errorf("conversation id has %d characters: want a UUID, dashed or 32 hex digits", len(s))
	}
	if _, err := hex.Decode(b[:], []byte(digits)); err != nil {
		return "", fmt.Errorf("conversation id: want a UUID, dashed or 32 hex digits: %w", err)
	}
	return dashed(b), nil
}

// newID returns a random id (UUID version 4).
func newID() ID {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return dashed(b)
}

func dashed(b [16]byte) ID {
	h := hex.EncodeToString(b[:])
	return ID(h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
}

// Hex returns the id as 32 hex digits.
func (id ID) Hex() string { return strings.ReplaceAll(string(id), "-", "") }
