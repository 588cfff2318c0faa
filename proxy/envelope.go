package proxy

import (
	"unicode/utf8"
)

// Bounds of the envelope reader. They are far above what clients send and keep
// what the sidecar remembers of a message small.
const (
	maxBatch   = 256
	maxID      = 1 << 10
	maxMethod  = 256
	maxNesting = 1000
)

// JSON-RPC error codes of a refused body.
const (
	codeParse   = -32700
	codeInvalid = -32600
)

// envelopeError refuses a body. Its text is constant: nothing of the input is
// ever echoed.
type envelopeError struct {
	code int // JSON-RPC error code: codeParse or codeInvalid
	text string
}

func (e *envelopeError) Error() string { return e.text }

// The reasons for which a body is refused.
var (
	errSyntax    = &envelopeError{codeParse, "the body is not valid JSON"}
	errEncoding  = &envelopeError{codeParse, "the JSON-RPC envelope is not valid UTF-8"}
	errTrailing  = &envelopeError{codeParse, "there is data after the JSON-RPC message"}
	errNesting   = &envelopeError{codeInvalid, "the body is nested too deeply"}
	errNotObject = &envelopeError{codeInvalid, "a JSON-RPC message must be an object"}
	errShape     = &envelopeError{codeInvalid, "the message is neither a request, a notification nor a response"}
	errDuplicate = &envelopeError{codeInvalid, "a member of the JSON-RPC envelope appears twice"}
	errVariant   = &envelopeError{codeInvalid, "a member of the JSON-RPC envelope has a look-alike name"}
	errID        = &envelopeError{codeInvalid, "the id must be a string, a number or null, of at most 1024 bytes"}
	errMethod    = &envelopeError{codeInvalid, "the method must be a string of at most 256 bytes"}
	errBatchSize = &envelopeError{codeInvalid, "a batch must hold between 1 and 256 messages"}
)

// messageKind tells the three shapes of a JSON-RPC message apart.
type messageKind int

const (
	kindRequest messageKind = iota + 1
	kindNotification
	kindResponse
)

// span is a half-open range of bytes of the body; the zero span is an absent
// member.
type span struct{ start, end int }

// of returns the bytes of b that the span covers, nil for an absent member.
func (s span) of(b []byte) []byte {
	if s.end == 0 {
		return nil
	}
	return b[s.start:s.end:s.end]
}

// envelope is what the sidecar reads of a body: the JSON-RPC members that it
// acts on and nothing else. Slices in it point into the body.
type envelope struct {
	batch    bool
	messages []message // never empty
}

// message is one JSON-RPC message. Members of params are filled in only for
// the methods for which the sidecar acts on them; members of an unexpected JSON
// type count as absent, since telling the client is the backend's business.
type message struct {
	kind   messageKind
	id     []byte // exactly as spelled; nil when there is none
	method string

	name            string // tools/call, prompts/get
	uri             string // resources/read, resources/subscribe, resources/unsubscribe
	hasCursor       bool   // lists: params.cursor is a string, the empty one included
	protocolVersion string // initialize: params.protocolVersion
	metaVersion     string // params._meta["io.modelcontextprotocol/protocolVersion"]
	progressToken   []byte // params._meta.progressToken, raw
	cancelledID     []byte // notifications/cancelled: params.requestId, raw
	level           string // logging/setLevel
	filter          []byte // subscriptions/listen: params.notifications, raw
	hasTask         bool   // params.task
	hasRequestState bool   // params.requestState or params.inputResponses

	isError   bool  // a response that carries an error
	errorCode int64 // its code, 0 when it has none that is an integer

	span   span // the message itself
	params span
	result span
}

// readEnvelope reads the JSON-RPC envelope of a body in one pass, without
// decoding arguments or results. It refuses (with an *envelopeError) what the
// backend might read differently: members of the envelope that appear twice or
// in a look-alike spelling, trailing data, broken JSON. Whatever is not acted on
// passes: unknown members, big numbers, duplicate keys inside arguments.
//
// The envelope refers to body, which must not change while it is in use.
func readEnvelope(body []byte) (envelope, error) {
	s := scanner{b: body}
	var e envelope
	if s.peek() != '[' {
		e.messages = make([]message, 1)
		if err := s.message(&e.messages[0]); err != nil {
			return envelope{}, err
		}
	} else if err := s.batch(&e); err != nil {
		return envelope{}, err
	}
	if s.peek(); s.i != len(s.b) {
		return envelope{}, errTrailing
	}
	return e, nil
}

// batch reads an array of messages (protocol revision 2025-03-26).
func (s *scanner) batch(e *envelope) error {
	e.batch = true
	s.i++
	s.depth++
	if s.peek() == ']' {
		return errBatchSize
	}
	for {
		if len(e.messages) == maxBatch {
			return errBatchSize
		}
		var m message
		if err := s.message(&m); err != nil {
			return err
		}
		e.messages = append(e.messages, m)
		switch s.peek() {
		case ',':
			s.i++
		case ']':
			s.i++
			s.depth--
			return nil
		default:
			return errSyntax
		}
	}
}

// member is a bit for each member of an object that the sidecar acts on.
type member uint32

// Members of a message, in the order in which message names them.
const (
	memberVersion member = 1 << iota // jsonrpc
	memberID
	memberMethod
	memberParams
	memberResult
	memberError
)

// Members of params, in the order in which params names them.
const (
	paramName member = 1 << iota
	paramURI
	paramMeta
	paramCursor
	paramVersion
	paramRequestID
	paramLevel
	paramTask
	paramRequestState
	paramInputResponses
	paramFilter
	paramCount = iota
)

// params collects what was seen in params. Which of it counts is known only
// once the method is, and the method may come last.
type params struct {
	values  [paramCount]span
	seen    member
	twice   member
	variant member

	metaVersion   span
	progressToken span
	metaErr       error
}

func (s *scanner) message(m *message) error {
	if s.peek() != '{' {
		if s.i == len(s.b) {
			return errSyntax
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
		bit, exact := match(key, "jsonrpc", "id", "method", "params", "result", "error")
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
		}
	}
	m.span.end = s.i

	switch {
	case seen&memberMethod != 0 && seen&(memberResult|memberError) != 0:
		return errShape
	case seen&memberMethod != 0:
		if err := s.call(m, method, &p); err != nil {
			return err
		}
	case seen&(memberResult|memberError) != 0 && seen&memberID != 0:
		m.kind = kindResponse
		m.isError = errObj.end != 0
		m.errorCode = errorCode(errObj.of(s.b))
	case errObj.end != 0: // an error that belongs to no request, e.g. HTTP 403
		m.kind = kindResponse
		m.isError = true
		m.errorCode = errorCode(errObj.of(s.b))
	default:
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

// call fills in a request or a notification.
func (s *scanner) call(m *message, method span, p *params) error {
	raw := s.b[method.start+1 : method.end-1]
	if len(raw) > maxMethod {
		return errMethod
	}
	var err error
	if m.method, err = methodName(raw); err != nil {
		return err
	}
	m.kind = kindRequest
	if m.id == nil {
		m.kind = kindNotification
	}

	acted := actedOn(m.method)
	if p.twice&acted != 0 {
		return errDuplicate
	}
	if p.variant&acted != 0 {
		return errVariant
	}
	if p.metaErr != nil {
		return p.metaErr
	}
	for _, f := range []struct {
		bit member
		dst *string
	}{
		{paramName, &m.name},
		{paramURI, &m.uri},
		{paramVersion, &m.protocolVersion},
		{paramLevel, &m.level},
	} {
		if acted&f.bit == 0 {
			continue
		}
		if *f.dst, err = text(p.value(f.bit).of(s.b)); err != nil {
			return err
		}
	}
	if m.metaVersion, err = text(p.metaVersion.of(s.b)); err != nil {
		return err
	}
	m.progressToken = p.progressToken.of(s.b)
	if acted&paramCursor != 0 {
		raw := p.value(paramCursor).of(s.b)
		m.hasCursor = len(raw) != 0 && raw[0] == '"'
	}
	if acted&paramRequestID != 0 {
		m.cancelledID = p.value(paramRequestID).of(s.b)
	}
	if acted&paramFilter != 0 {
		m.filter = p.value(paramFilter).of(s.b)
	}
	m.hasTask = p.seen&paramTask != 0
	m.hasRequestState = p.seen&(paramRequestState|paramInputResponses) != 0
	return nil
}

// actedOn returns the members of params that matter for a method.
func actedOn(method string) member {
	const always = paramMeta | paramTask | paramRequestState | paramInputResponses
	switch method {
	case "tools/call", "prompts/get":
		return always | paramName
	case "resources/read", "resources/subscribe", "resources/unsubscribe":
		return always | paramURI
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return always | paramCursor
	case "initialize":
		return always | paramVersion
	case "notifications/cancelled":
		return always | paramRequestID
	case "logging/setLevel":
		return always | paramLevel
	case "subscriptions/listen":
		return always | paramFilter
	}
	return always
}

// params reads the members of params.
func (s *scanner) params(p *params) error {
	s.open()
	for {
		key, more, err := s.key()
		if err != nil || !more {
			return err
		}
		bit, exact := match(key, "name", "uri", "_meta", "cursor", "protocolVersion", "requestId", "level",
			"task", "requestState", "inputResponses", "notifications")
		switch {
		case bit != 0 && !exact:
			p.variant |= bit
			bit = 0
		case p.seen&bit != 0:
			p.twice |= bit
		}
		p.seen |= bit
		if bit == paramMeta && s.peek() == '{' {
			if err := s.meta(p); err != nil {
				return err
			}
			continue
		}
		_, value, err := s.value()
		if err != nil {
			return err
		}
		if bit != 0 {
			p.values[bitIndex(bit)] = value
		}
	}
}

// meta reads the members of params._meta.
func (s *scanner) meta(p *params) error {
	s.open()
	for {
		key, more, err := s.key()
		if err != nil || !more {
			return err
		}
		bit, exact := match(key, "io.modelcontextprotocol/protocolVersion", "progressToken")
		_, value, err := s.value()
		if err != nil {
			return err
		}
		if bit == 0 {
			continue
		}
		dst := &p.metaVersion
		if bit == 2 {
			dst = &p.progressToken
		}
		switch {
		case !exact:
			p.metaErr = errVariant
		case dst.end != 0:
			p.metaErr = errDuplicate
		}
		*dst = value
	}
}

func (p *params) value(bit member) span { return p.values[bitIndex(bit)] }
