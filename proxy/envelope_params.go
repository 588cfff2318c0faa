package proxy

import "math/bits"

// param is a bit for each member of params that the sidecar acts on.
type param uint32

// The bits are in the order in which params names the members.
const (
	paramName param = 1 << iota
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
	seen    param
	twice   param
	variant param

	metaVersion   span
	progressToken span
	metaErr       error
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
		bit param
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
	m.hasTask = p.seen&acted&paramTask != 0
	m.hasRequestState = p.seen&acted&(paramRequestState|paramInputResponses) != 0
	return nil
}

// actedOn returns the members of params that matter for a method.
func actedOn(method string) param {
	// Whether a request may be sent again depends on these.
	const replay = paramTask | paramRequestState | paramInputResponses
	switch method {
	case "tools/call", "prompts/get":
		return paramMeta | paramName | replay
	case "resources/read":
		return paramMeta | paramURI | replay
	case "resources/subscribe", "resources/unsubscribe":
		return paramMeta | paramURI
	case "tools/list", "prompts/list", "resources/list", "resources/templates/list":
		return paramMeta | paramCursor
	case "initialize":
		return paramMeta | paramVersion
	case "notifications/cancelled":
		return paramMeta | paramRequestID
	case "logging/setLevel":
		return paramMeta | paramLevel
	case "subscriptions/listen":
		return paramMeta | paramFilter
	}
	return paramMeta
}

// params reads the members of params.
func (s *scanner) params(p *params) error {
	s.open()
	for {
		key, more, err := s.key()
		if err != nil || !more {
			return err
		}
		n, exact := match(key, "name", "uri", "_meta", "cursor", "protocolVersion", "requestId", "level",
			"task", "requestState", "inputResponses", "notifications")
		bit := param(n)
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
			p.values[bits.TrailingZeros32(n)] = value
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

func (p *params) value(bit param) span { return p.values[bits.TrailingZeros32(uint32(bit))] }
