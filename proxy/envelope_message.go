package proxy

import (
	"strconv"
	"unicode/utf8"
)

// member is a bit for each member of a message.
type member uint32

// The bits are in the order in which message names the members.
const (
	memberVersion member = 1 << iota // jsonrpc
	memberID
	memberMethod
	memberParams
	memberResult
	memberError
)

// message reads one message.
func (s *scanner) message(m *message) error {
	if s.peek() != '{' {
		if err := s.skip(); err != nil {
			return err
		}
		return errNotObject
	}
	m.span.start = s.i
	var (
		seen   member
		method span
		errObj span
		p      params
	)
	s.open()
	for {
		key, more, err := s.key()
		if err != nil {
			return err
		}
		if !more {
			break
		}
		n, exact := match(key, "jsonrpc", "id", "method", "params", "result", "error")
		bit := member(n)
		if bit != 0 && !exact {
			return errVariant
		}
		if seen&bit != 0 {
			return errDuplicate
		}
		seen |= bit
		if bit == memberParams && s.peek() == '{' {
			m.params.start = s.i
			if err := s.params(&p); err != nil {
				return err
			}
			m.params.end = s.i
			continue
		}
		first, value, err := s.value()
		if err != nil {
			return err
		}
		switch bit {
		case memberID:
			if m.id, err = s.id(first, value); err != nil {
				return err
			}
		case memberMethod:
			if first != '"' {
				return errMethod
			}
			method = value
		case memberParams:
			m.params = value
		case memberResult:
			m.result = value
		case memberError:
			if first != 'n' { // some frameworks write "error": null next to a result
				errObj = value
			}
		default: // nothing to note
		}
	}
	m.span.end = s.i

	switch {
	case seen&memberMethod == 0:
		return s.response(m, seen, errObj)
	case seen&(memberResult|memberError) != 0:
		return errShape
	default:
		return s.call(m, method, &p)
	}
}

// response fills in a response. Only an error may come without an id: it answers
// what was no request.
func (s *scanner) response(m *message, seen member, errObj span) error {
	m.kind = kindResponse
	m.isError = errObj.end != 0
	m.errorCode = errorCode(errObj.of(s.b))

	if seen&(memberResult|memberError) == 0 || seen&memberID == 0 && !m.isError {
		return errShape
	}
	return nil
}

// id checks the value of an id and returns it as spelled.
func (s *scanner) id(first byte, value span) ([]byte, error) {
	raw := value.of(s.b)
	if len(raw) > maxID {
		return nil, errID
	}
	switch first {
	case '"':
		if !utf8.Valid(raw) {
			return nil, errEncoding
		}
	case '{', '[', 't', 'f':
		return nil, errID
	}
	return raw, nil
}

// errorCode reads the code of a raw JSON-RPC error object, 0 when there is no
// integer to be had, or more than one.
func errorCode(raw []byte) int64 {
	s := scanner{b: raw}
	v, ok := s.find("code")
	if !ok {
		return 0
	}
	code, err := strconv.ParseInt(string(v.of(raw)), 10, 64)
	if err != nil {
		return 0
	}
	return code
}
