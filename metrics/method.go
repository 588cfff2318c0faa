package metrics

import "slices"

// OtherMethod is the label value of every method that no published revision of
// MCP knows.
const OtherMethod = "other"

// Method returns the label value for a JSON-RPC method: the method itself when a
// published revision of MCP (2024-11-05 to 2026-07-28, and its tasks extension)
// knows it, else [OtherMethod]. Method names come from the wire, so a label must
// never carry one that didn't pass through here.
func Method(m string) string {
	if _, ok := methods[m]; ok {
		return m
	}

	return OtherMethod
}

// Methods returns every value that [Method] can return, sorted.
func Methods() []string {
	all := []string{OtherMethod}
	for m := range methods {
		all = append(all, m)
	}

	slices.Sort(all)

	return all
}

// ClientMethods returns the values of [Method] for messages that a client sends,
// [OtherMethod] included, sorted. It is what a metric about clients' requests
// creates up front: the rest would be series that never move.
func ClientMethods() []string {
	all := []string{OtherMethod}

	for m, from := range methods {
		if from&fromClient != 0 {
			all = append(all, m)
		}
	}

	slices.Sort(all)

	return all
}

// sender says who sends a method; some are sent by both.
type sender uint8

const (
	fromClient sender = 1 << iota
	fromServer
)

// methods is the allow-list.
//
//nolint:gochecknoglobals // a constant table: nothing writes it
var methods = map[string]sender{
	"completion/complete":                      fromClient,
	"elicitation/create":                       fromServer,
	"initialize":                               fromClient,
	"logging/setLevel":                         fromClient,
	"notifications/cancelled":                  fromClient | fromServer,
	"notifications/elicitation/complete":       fromServer,
	"notifications/initialized":                fromClient,
	"notifications/message":                    fromServer,
	"notifications/progress":                   fromClient | fromServer,
	"notifications/prompts/list_changed":       fromServer,
	"notifications/resources/list_changed":     fromServer,
	"notifications/resources/updated":          fromServer,
	"notifications/roots/list_changed":         fromClient,
	"notifications/subscriptions/acknowledged": fromServer, // since 2026-07-28
	"notifications/tasks":                      fromServer, // the tasks extension of 2026-07-28
	"notifications/tasks/status":               fromClient | fromServer,
	"notifications/tools/list_changed":         fromServer,
	"ping":                                     fromClient | fromServer,
	"prompts/get":                              fromClient,
	"prompts/list":                             fromClient,
	"resources/list":                           fromClient,
	"resources/read":                           fromClient,
	"resources/subscribe":                      fromClient,
	"resources/templates/list":                 fromClient,
	"resources/unsubscribe":                    fromClient,
	"roots/list":                               fromServer,
	"sampling/createMessage":                   fromServer,
	"server/discover":                          fromClient, // since 2026-07-28
	"subscriptions/listen":                     fromClient, // since 2026-07-28
	"tasks/cancel":                             fromClient | fromServer,
	"tasks/get":                                fromClient | fromServer,
	"tasks/list":                               fromClient | fromServer,
	"tasks/result":                             fromClient | fromServer,
	"tasks/update":                             fromClient, // the tasks extension of 2026-07-28
	"tools/call":                               fromClient,
	"tools/list":                               fromClient,
}
