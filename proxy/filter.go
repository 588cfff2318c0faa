package proxy

import (
	"encoding/json"
	"reflect"
	"slices"
)

// Names in the messages of a subscription.
const (
	methodAcknowledged = "notifications/subscriptions/acknowledged"

	keySubscription = `"io.modelcontextprotocol/subscriptionId"`
	toolsChanged    = "toolsListChanged"
)

// filterOf reads a raw filter: which changes a client asked to hear of, or a
// server agreed to tell. What isn't one is empty.
func filterOf(raw []byte) map[string]any {
	var f map[string]any
	if len(raw) == 0 || json.Unmarshal(raw, &f) != nil {
		return nil
	}

	return f
}

// honours reports whether a filter has everything that another one promises, but
// for changes of the tool list, of which the sidecar can tell by itself.
func honours(have, promised map[string]any) bool {
	for name, want := range promised {
		if name != toolsChanged && !covers(have[name], want) {
			return false
		}
	}

	return true
}

// covers reports whether one member of a filter has all of another. Members that
// extensions add are lists or flags as well.
func covers(have, want any) bool {
	switch want := want.(type) {
	case nil:
		return true
	case bool:
		return !want || have == true
	case []any:
		list, _ := have.([]any)

		for _, w := range want {
			if !slices.ContainsFunc(list, func(h any) bool { return reflect.DeepEqual(h, w) }) {
				return false
			}
		}

		return true
	default:
		return reflect.DeepEqual(have, want)
	}
}

// empty reports whether a filter promises nothing.
func empty(f map[string]any) bool {
	for _, v := range f {
		if !covers(nil, v) {
			return false
		}
	}

	return true
}

// acknowledgedFilter is the raw filter in an acknowledgement.
func acknowledgedFilter(body []byte, m *message) []byte {
	params := m.params.of(body)
	if len(params) == 0 || params[0] != '{' {
		return nil
	}

	s := scanner{b: params}

	at, ok := s.find("notifications")
	if !ok {
		return nil
	}

	return at.of(params)
}

// The messages of the sidecar's own on the stream. The subscription's id keeps the
// spelling that the client gave it.

// acknowledgement promises notices of changed tools and nothing else.
func (s *subscription) acknowledgement() []byte {
	return s.tagged(`{"jsonrpc":"2.0","method":"`+methodAcknowledged+`","params":{"_meta":{`, `},"notifications":{"`+toolsChanged+`":true}}}`)
}

func (s *subscription) listChanged() []byte {
	return s.tagged(`{"jsonrpc":"2.0","method":"`+methodListChanged+`","params":{"_meta":{`, `}}}`)
}

// result ends the subscription gracefully.
func (s *subscription) result() []byte {
	return s.tagged(`{"jsonrpc":"2.0","id":`+string(s.id)+`,"result":{"resultType":"complete","_meta":{`, `}}}`)
}

func (s *subscription) tagged(before, after string) []byte {
	return slices.Concat([]byte(before+keySubscription+":"), s.id, []byte(after))
}
