package proxy

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
	hasTask         bool   // tools/call, prompts/get, resources/read: params.task
	hasRequestState bool   // the same: params.requestState or params.inputResponses

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
func readEnvelope(body []byte) (envelope, error) { return readEnvelopeInto(body, nil) }

// readEnvelopeInto does the same, and puts a message that comes alone into one,
// unless that is nil.
func readEnvelopeInto(body []byte, one []message) (envelope, error) {
	s := scanner{b: body}
	var e envelope
	if s.peek() != '[' {
		if e.messages = one; one == nil {
			e.messages = make([]message, 1)
		}
		e.messages[0] = message{}
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

// beginsResult reports whether body begins like a response with a result, as far as
// that can be told without reading the result.
func beginsResult(body []byte) bool {
	s := scanner{b: body}
	if s.peek() != '{' {
		return false
	}
	s.open()
	for {
		key, more, err := s.key()
		if err != nil || !more {
			return false
		}
		switch string(key) {
		case "result":
			return true
		case "jsonrpc", "id":
		default:
			return false
		}
		if _, _, err := s.value(); err != nil {
			return false
		}
	}
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
