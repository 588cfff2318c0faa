package stdio

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/mark3labs/mcp-go/mcp"
)

// kind tells the three shapes of a JSON-RPC message apart.
type kind int

const (
	kindRequest kind = iota + 1
	kindNotification
	kindResponse
)

var (
	errNotObject = errors.New("a JSON-RPC message must be an object")
	errShape     = errors.New("the message is neither a request, a notification nor a response")
	errTrailing  = errors.New("there is data after the JSON-RPC message")
)

// span is a half-open range of bytes; the zero span is an absent member.
type span struct{ from, to int }

func (s span) of(b []byte) []byte { return b[s.from:s.to:s.to] }

func (s span) absent() bool { return s.to == 0 }

// message is one JSON-RPC message and where its members are. Nothing but what is
// acted on is decoded.
type message struct {
	raw    []byte
	kind   kind
	method string

	id, params, result, failure span
}

// readMessages reads the messages of a body or of a line: one, or several of a
// batch (MCP 2025-03-26). They refer to b.
func readMessages(b []byte) (messages []message, batch bool, err error) {
	d := decoder(b)
	if d.PeekKind() != '[' {
		m, err := readMessage(b)
		return []message{m}, false, err
	}

	if _, err = d.ReadToken(); err != nil {
		return nil, true, err //nolint:wrapcheck // the syntax error says all
	}

	for d.PeekKind() != ']' {
		v, err := d.ReadValue()
		if err != nil {
			return nil, true, err //nolint:wrapcheck // see above
		}

		end := int(d.InputOffset())

		m, err := readMessage(b[end-len(v) : end : end])
		if err != nil {
			return nil, true, err
		}

		messages = append(messages, m)
	}

	if len(messages) == 0 {
		return nil, true, errShape
	}

	return messages, true, endOfInput(d)
}

// readMessage reads one message.
func readMessage(raw []byte) (message, error) {
	m := message{raw: raw}

	var method span

	err := members(raw, span{0, len(raw)}, func(name string, value span) {
		switch name {
		case "id":
			m.id = value
		case "method":
			method = value
		case "params":
			m.params = value
		case "result":
			m.result = value
		case "error":
			m.failure = value
		}
	})
	if err != nil {
		return message{}, err
	}

	switch {
	case !method.absent():
		text, ok := unquote(method.of(raw))
		if !ok {
			return message{}, errShape
		}

		m.method, m.kind = text, kindNotification
		if !m.id.absent() {
			m.kind = kindRequest
		}
	case m.id.absent() || m.result.absent() == m.failure.absent():
		return message{}, errShape
	default:
		m.kind = kindResponse
	}

	return m, nil
}

// param returns where a value below params is, by the names on the way to it.
func (m *message) param(path ...string) span { return find(m.raw, m.params, path...) }

// token returns where the progress token of a request is.
func (m *message) token() span { return m.param("_meta", "progressToken") }

// version returns the protocol revision that a request names for itself (MCP
// 2026-07-28 "Per-request metadata"), or "".
func (m *message) version() string {
	v, _ := unquote(m.param("_meta", mcp.MetaKeyProtocolVersion).of(m.raw))
	return v
}

// modern reports whether a message stands for itself, without any session.
func (m *message) modern() bool { return mcp.IsModernProtocol(m.version()) }

// decoder reads JSON as leniently as any process at the other end may.
func decoder(b []byte) *jsontext.Decoder {
	return jsontext.NewDecoder(bytes.NewBuffer(b), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
}

// members visits the members of the JSON object that in covers. Of members with the
// same name the last one counts, as almost everywhere.
func members(b []byte, in span, visit func(name string, value span)) error {
	d := decoder(in.of(b))
	if d.PeekKind() != '{' {
		return errNotObject
	}

	if _, err := d.ReadToken(); err != nil {
		return err //nolint:wrapcheck // the syntax error says all
	}

	for d.PeekKind() != '}' {
		t, err := d.ReadToken()
		if err != nil {
			return err //nolint:wrapcheck // see above
		}

		name := t.String()

		v, err := d.ReadValue()
		if err != nil {
			return err //nolint:wrapcheck // see above
		}

		end := in.from + int(d.InputOffset())
		visit(name, span{end - len(v), end})
	}

	return endOfInput(d)
}

// endOfInput reads the closing bracket and makes sure that nothing follows.
func endOfInput(d *jsontext.Decoder) error {
	if _, err := d.ReadToken(); err != nil {
		return err //nolint:wrapcheck // the syntax error says all
	}

	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errTrailing
	}

	return nil
}

// find returns the value that a path of names leads to.
func find(b []byte, in span, path ...string) span {
	for _, want := range path {
		if in.absent() {
			return span{}
		}

		var found span

		// What isn't an object has no such member.
		_ = members(b, in, func(name string, value span) {
			if name == want {
				found = value
			}
		})

		in = found
	}

	return in
}

// unquote returns the text of a JSON string.
func unquote(raw []byte) (string, bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return "", false
	}

	text, err := jsontext.AppendUnquote(nil, raw)

	return string(text), err == nil
}

// idKey makes ids and tokens comparable that may be spelled in different ways.
func idKey(raw []byte) string {
	if text, ok := unquote(raw); ok {
		return `"` + text
	}

	return string(raw)
}

// edit is a value to put in place of another.
type edit struct {
	at  span
	new []byte
}

// splice returns a copy of b with some values replaced. Edits of absent members are
// ignored.
func splice(b []byte, edits ...edit) []byte {
	slices.SortFunc(edits, func(x, y edit) int { return x.at.from - y.at.from })

	out := make([]byte, 0, len(b)+64)
	done := 0

	for _, e := range edits {
		if !e.at.absent() {
			out = append(append(out, b[done:e.at.from]...), e.new...)
			done = e.at.to
		}
	}

	return append(out, b[done:]...)
}

// line makes a message one line. In valid JSON line breaks are nothing but white
// space. It changes b.
func line(b []byte) []byte {
	flatten(b)
	return append(b, '\n')
}

func flatten(b []byte) {
	for i, c := range b {
		if c == '\n' || c == '\r' {
			b[i] = ' '
		}
	}
}

// errorMessage returns an error response; id is raw and may be nil.
func errorMessage(id []byte, code int, text string) []byte {
	if id == nil {
		id = []byte("null")
	}

	b := append([]byte(`{"jsonrpc":"2.0","id":`), id...)
	b = append(strconv.AppendInt(append(b, `,"error":{"code":`...), int64(code), 10), `,"message":`...)

	// What isn't valid UTF-8 is replaced.
	b, _ = jsontext.AppendQuote(b, text)

	return append(b, "}}"...)
}
