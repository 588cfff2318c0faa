package proxy

// reads reports whether a method has no effect beyond the connection that asks,
// or sets something to a value it may be set to twice. Such a request may be sent
// again even when the backend had it.
func reads(method string) bool {
	switch method {
	case "initialize", "ping", "server/discover", "completion/complete",
		"tools/list", "prompts/list", "prompts/get",
		"resources/list", "resources/templates/list", "resources/read",
		"resources/subscribe", "resources/unsubscribe", "logging/setLevel",
		"tasks/get", "tasks/list", "tasks/result", "subscriptions/listen":
		return true
	default:
		return false
	}
}

// mayRepeat reports whether all of what a client sent may be sent again although
// the backend may have begun with it. Tools are trusted to be what their
// annotations say when the backend that had the call and, once its list is known
// (compare), the one that is there now define them alike. (MCP 2025-11-25 "Tools":
// annotations are hints.)
func (x *exchange) mayRepeat(compare bool) bool {
	for i := range x.env.messages {
		m := &x.env.messages[i]

		switch {
		case m.kind == kindResponse:
			return false
		case m.kind == kindNotification:
			// Its effect isn't known, and the client waits for no answer.
			return false
		case m.hasTask || m.hasRequestState:
			return false
		case reads(m.method):
		case m.method == methodCall && x.toolMayRepeat(m.name, compare):
		default:
			return false
		}
	}

	return true
}

func (x *exchange) toolMayRepeat(name string, compare bool) bool {
	if x.srv.conf().Replay == ReplayNever {
		return false
	}

	for _, before := range x.hints {
		if before.Name == name {
			now, ok := x.srv.gate.tool(name)

			return !compare || ok && now == before
		}
	}

	return false
}

// rememberHints keeps what is said of the called tools before the call goes out:
// afterwards it may be said by another process.
func (x *exchange) rememberHints() {
	x.hints = nil

	for i := range x.env.messages {
		m := &x.env.messages[i]
		if m.method != methodCall {
			continue
		}

		if t, ok := x.srv.gate.tool(m.name); ok && (t.ReadOnly || t.Idempotent) {
			x.hints = append(x.hints, t)
		}
	}
}
