package proxy

import (
	"encoding/binary"
	"math/bits"
	"unicode/utf8"
)

// scanner walks JSON text without decoding it. It accepts the grammar of RFC
// 8259 and leaves two things open where nothing is acted on: strings may hold
// invalid UTF-8, and names may repeat.
type scanner struct {
	b     []byte
	i     int
	depth int      // containers that are open around i
	first bool     // the next key is the first of its object
	buf   [64]byte // holds a key that had escapes; none that is acted on is longer
}

// peek skips white space and returns the next byte, 0 at the end.
func (s *scanner) peek() byte {
	for s.i < len(s.b) {
		c := s.b[s.i]
		if c > ' ' || c != ' ' && c != '\n' && c != '\r' && c != '\t' {
			return c
		}
		s.i++
	}
	return 0
}

// open enters the object at i.
func (s *scanner) open() {
	s.i++
	s.depth++
	s.first = true
}

// key reads the next key of the open object and its colon; more is false when
// the object ended, which leaves it. The key is valid until the next one.
func (s *scanner) key() (key []byte, more bool, err error) {
	c := s.peek()
	switch {
	case c == '}':
		s.i++
		s.depth--
		s.first = false
		return nil, false, nil
	case s.first:
	case c == ',':
		s.i++
		c = s.peek()
	default:
		return nil, false, errSyntax
	}
	s.first = false
	if c != '"' {
		return nil, false, errSyntax
	}
	start := s.i
	escaped, err := s.str()
	if err != nil {
		return nil, false, err
	}
	key = s.b[start+1 : s.i-1]
	if !utf8.Valid(key) {
		return nil, false, errEncoding
	}
	if escaped {
		key = unescape(s.buf[:0], key)
	}
	if s.peek() != ':' {
		return nil, false, errSyntax
	}
	s.i++
	return key, true, nil
}

// value skips the value at i and returns its first byte and its range.
func (s *scanner) value() (byte, span, error) {
	first := s.peek()
	start := s.i
	err := s.skip()
	return first, span{start, s.i}, err
}

// skip moves past one value of any kind. It is iterative: a bit for each open
// container tells objects from arrays, so that deep nesting costs no memory.
func (s *scanner) skip() error {
	var objects [maxNesting/64 + 1]uint64
	depth := 0
	for {
		switch c := s.peek(); c {
		case '{', '[':
			if s.depth+depth >= maxNesting {
				return errNesting
			}
			s.i++
			word, bit := &objects[depth/64], uint64(1)<<(depth%64)
			depth++
			if c == '{' {
				*word |= bit
				if s.peek() != '}' {
					if err := s.name(); err != nil {
						return err
					}
					continue
				}
			} else {
				*word &^= bit
				if s.peek() != ']' {
					continue
				}
			}
			s.i++
			depth--
		case '"':
			if _, err := s.str(); err != nil {
				return err
			}
		case 't':
			if err := s.literal("true"); err != nil {
				return err
			}
		case 'f':
			if err := s.literal("false"); err != nil {
				return err
			}
		case 'n':
			if err := s.literal("null"); err != nil {
				return err
			}
		default:
			if err := s.number(); err != nil {
				return err
			}
		}
		// A value ended: so may the containers around it.
		for {
			if depth == 0 {
				return nil
			}
			object := objects[(depth-1)/64]>>((depth-1)%64)&1 == 1
			c := s.peek()
			if c == ',' {
				s.i++
				if object {
					s.peek()
					if err := s.name(); err != nil {
						return err
					}
				}
				break
			}
			if object && c != '}' || !object && c != ']' {
				return errSyntax
			}
			s.i++
			depth--
		}
	}
}

// name skips a key and its colon.
func (s *scanner) name() error {
	if _, err := s.str(); err != nil {
		return err
	}
	if s.peek() != ':' {
		return errSyntax
	}
	s.i++
	return nil
}

func (s *scanner) literal(want string) error {
	if end := s.i + len(want); end <= len(s.b) && string(s.b[s.i:end]) == want {
		s.i = end
		return nil
	}
	return errSyntax
}

// str skips the string at i and tells whether it has escapes.
func (s *scanner) str() (escaped bool, err error) {
	if s.i >= len(s.b) || s.b[s.i] != '"' {
		return false, errSyntax
	}
	b, i := s.b, s.i+1
	for {
		// Eight bytes at a time up to the next that may need a look.
		for i+8 <= len(b) {
			m := special(binary.LittleEndian.Uint64(b[i:]))
			if m != 0 {
				i += bits.TrailingZeros64(m) / 8
				break
			}
			i += 8
		}
		if i >= len(b) {
			return escaped, errSyntax
		}
		switch c := b[i]; {
		case c == '"':
			s.i = i + 1
			return escaped, nil
		case c < ' ':
			return escaped, errSyntax
		case c == '\\':
			escaped = true
			n := escapeLen(b[i:])
			if n == 0 {
				return escaped, errSyntax
			}
			i += n
		default:
			i++
		}
	}
}

// special marks, by their highest bit, which of eight bytes may be a quote, a
// backslash, a control byte or not ASCII. No such byte is missed, and below the
// first mark there is none; marks above it may be wrong.
func special(w uint64) uint64 {
	const ones, highs = 0x0101010101010101, 0x8080808080808080
	quote := w ^ ones*'"'
	slash := w ^ ones*'\\'
	return ((w - ones*' ') | (quote - ones) | (slash - ones) | w) & highs
}

// escapeLen returns the length of the escape sequence at the start of b, 0 when
// it is malformed.
func escapeLen(b []byte) int {
	if len(b) < 2 {
		return 0
	}
	switch b[1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		if _, ok := hex4(b[2:]); ok {
			return 6
		}
	}
	return 0
}

func hex4(b []byte) (rune, bool) {
	if len(b) < 4 {
		return 0, false
	}
	var r rune
	for _, c := range b[:4] {
		switch {
		case '0' <= c && c <= '9':
			c -= '0'
		case 'a' <= c && c <= 'f':
			c -= 'a' - 10
		case 'A' <= c && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, false
		}
		r = r<<4 | rune(c)
	}
	return r, true
}

// number skips the number at i.
func (s *scanner) number() error {
	if s.i < len(s.b) && s.b[s.i] == '-' {
		s.i++
	}
	zero := s.i < len(s.b) && s.b[s.i] == '0'
	if n := s.digits(); n == 0 || zero && n > 1 {
		return errSyntax
	}
	if s.i < len(s.b) && s.b[s.i] == '.' {
		s.i++
		if s.digits() == 0 {
			return errSyntax
		}
	}
	if s.i < len(s.b) && s.b[s.i]|0x20 == 'e' {
		s.i++
		if s.i < len(s.b) && (s.b[s.i] == '+' || s.b[s.i] == '-') {
			s.i++
		}
		if s.digits() == 0 {
			return errSyntax
		}
	}
	return nil
}

func (s *scanner) digits() int {
	start := s.i
	for s.i < len(s.b) && '0' <= s.b[s.i] && s.b[s.i] <= '9' {
		s.i++
	}
	return s.i - start
}

// find looks in the object at i for a member that appears exactly once, and
// leaves the object.
func (s *scanner) find(name string) (span, bool) {
	if s.peek() != '{' {
		return span{}, false
	}
	var (
		found span
		n     int
	)
	s.open()
	for {
		key, more, err := s.key()
		if err != nil {
			return span{}, false
		}
		if !more {
			return found, n == 1
		}
		match := string(key) == name
		_, v, err := s.value()
		if err != nil {
			return span{}, false
		}
		if match {
			found = v
			n++
		}
	}
}
