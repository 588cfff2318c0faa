package admin

import (
	"errors"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// maxPage bounds the number of conversations in one answer.
const maxPage = 1000

func (a *api) listConversations(w http.ResponseWriter, r *http.Request) {
	q, err := parseQuery(r)
	if err != nil {
		invalidRequest.with(err.Error()).write(w)
		return
	}
	page, err := a.Conversations.List(q)
	if err != nil {
		a.fail(w, "listing conversations", err)
		return
	}
	out := ConversationPage{Conversations: make([]Conversation, len(page.Items)), Next: page.Next}
	for i, v := range page.Items {
		out.Conversations[i] = newConversation(v)
	}
	writeJSON(w, http.StatusOK, out)
}

func parseQuery(r *http.Request) (conversation.Query, error) {
	v := r.URL.Query()
	for k := range v {
		switch k {
		case "state", "server", "agentServer", "cursor", "limit":
		default:
			return conversation.Query{}, errors.New("the parameters are state, server, agentServer, cursor and limit")
		}
	}
	q := conversation.Query{
		State: conversation.State(v.Get("state")), Server: v.Get("server"), AgentServer: v.Get("agentServer"), Cursor: v.Get("cursor"),
	}
	if q.State != "" && !slices.Contains(conversation.States(), q.State) {
		var names []string
		for _, s := range conversation.States() {
			names = append(names, string(s))
		}
		return q, errors.New("state must be one of " + strings.Join(names, ", "))
	}
	if l := v.Get("limit"); l != "" {
		n, err := strconv.Atoi(l)
		if err != nil || n < 1 || n > maxPage {
			return q, errors.New("limit must be a number from 1 to " + strconv.Itoa(maxPage))
		}
		q.Limit = n
	}
	return q, nil
}

func (a *api) getConversation(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	v, err := a.Conversations.Get(id)
	if err != nil {
		a.fail(w, "reading a conversation", err)
		return
	}
	writeJSON(w, http.StatusOK, newConversation(v))
}

func (a *api) putConversation(w http.ResponseWriter, r *http.Request) {
	a.put(w, r, operator)
}

func (a *api) deleteConversation(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	if err := a.Conversations.Remove(r.Context(), id); err != nil {
		a.fail(w, "removing a conversation", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

func (a *api) refreshConversation(w http.ResponseWriter, r *http.Request) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	if err := a.Conversations.Refresh(r.Context(), id); err != nil {
		a.fail(w, "refreshing a conversation", err)
		return
	}
	v, err := a.Conversations.Get(id)
	if err != nil {
		a.fail(w, "reading a conversation", err)
		return
	}
	writeJSON(w, http.StatusAccepted, newConversation(v))
}

func newConversation(v conversation.View) Conversation {
	c := Conversation{
		ID: string(v.ID), AgentServer: v.AgentServer, AgentURL: v.AgentURL, State: string(v.State), Source: string(v.Source),
		Servers: make([]Standing, 0, len(v.Servers)), Attempts: v.Attempts, NextAttempt: timePtr(v.NextAttempt), Forced: v.Forced,
		StaleSince: timePtr(v.StaleSince), CreatedAt: timePtr(v.CreatedAt), RegisteredAt: timePtr(v.RegisteredAt),
		LastActive: timePtr(v.LastActive), ExpiresAt: timePtr(v.ExpiresAt),
	}
	for _, name := range slices.Sorted(maps.Keys(v.Servers)) {
		s := v.Servers[name]
		c.Servers = append(c.Servers, Standing{
			Name: name, Desired: s.Desired, Applied: s.Applied, How: string(s.How), AppliedAt: timePtr(s.AppliedAt), Current: s.Current,
		})
	}
	if v.LastError != nil {
		c.LastError = &RefreshFailed{Reason: v.LastError.Reason, Message: v.LastError.Message, At: timePtr(v.LastError.At)}
	}
	return c
}

func timePtr(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
