package admin

import (
	"context"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/discovery"
)

// RegisterDeps is what the handler of the registration listener works with. All
// but Logger is required.
type RegisterDeps struct {
	Logger        *slog.Logger // nil is silent
	Conversations Conversations
	// Tokens returns the token of each agent server that may register, by its
	// name. It is called for every request.
	Tokens func() map[string]string
	// Named notes that the agent server by says that it is the one that named means,
	// a URL or a name, and has the key. It returns which one that is, or an error
	// for the agent server to read.
	Named func(by, named, key string) (conversation.Instance, error)
	// Matcher returns what tells which conversations use this sidecar.
	Matcher func() *discovery.Matcher
}

type registerAPI struct {
	registrar
	tokens  func() map[string]string
	named   func(by, named, key string) (conversation.Instance, error)
	matcher func() *discovery.Matcher

	warnedAt atomic.Int64 // see refused
}

// NewRegister returns the handler of the registration listener.
func NewRegister(d RegisterDeps) http.Handler {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	a := &registerAPI{
		registrar: registrar{conversations: d.Conversations, logger: d.Logger}, tokens: d.Tokens, named: d.Named, matcher: d.Matcher,
	}
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /v1/conversations/{id}", a.putConversation)
	mux.HandleFunc("DELETE /v1/conversations/{id}", a.deleteConversation)
	mux.HandleFunc("POST /webhooks/openhands/{agentServer}/conversations", a.conversationWebhook)
	mux.HandleFunc("POST /webhooks/openhands/{agentServer}/events/{id}", a.eventsWebhook)
	return guard(a.authenticate(withProblems(mux)))
}

// agentKey is the context key of the agent server that sent a request.
type agentKey struct{}

func (a *registerAPI) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got := bearer(r)
		var names []string
		for name, want := range a.tokens() {
			if sameToken(got, want) {
				names = append(names, name)
			}
		}
		switch len(names) {
		case 0:
			a.refused("the token is no agent server's: see registerTokenFile")
			refuseUnauthorized(w, "send the agent server's registration token as Authorization: Bearer TOKEN")
		case 1:
			next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), agentKey{}, names[0])))
		default:
			a.refused("several agent servers have the same token in registerTokenFile: give each its own")
			forbidden.with("several agent servers have this token: give each its own").write(w)
		}
	})
}

// refused logs, now and then, why webhooks and registrations are refused: what sends them rarely tells anybody.
func (a *registerAPI) refused(reason string) {
	now, last := time.Now().UnixNano(), a.warnedAt.Load()
	if now-last < int64(time.Minute) || !a.warnedAt.CompareAndSwap(last, now) {
		return
	}
	a.logger.Warn("webhook or registration refused; such warnings come once a minute at most", "reason", reason)
}

func agentOf(r *http.Request) string {
	name, _ := r.Context().Value(agentKey{}).(string)
	return name
}

func (a *registerAPI) putConversation(w http.ResponseWriter, r *http.Request) {
	a.put(w, r, agentOf(r))
}

func (a *registerAPI) deleteConversation(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	v, err := a.conversations.Get(id)
	if err == nil && v.AgentServer != agentOf(r) {
		err = conversation.ErrNotFound // whose it is, is none of their business
	}
	if err == nil {
		err = a.conversations.Remove(r.Context(), id)
	}
	if err != nil {
		a.fail(w, "removing a conversation", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}
