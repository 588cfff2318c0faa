package admin

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
	"github.com/mcp-sidecar/mcp-sidecar/conversation/discovery"
)

const (
	// maxWebhook bounds what is read of a webhook's body, in bytes.
	maxWebhook = 8 << 20
	// maxDrained bounds what is thrown away of it: an agent server whose request is
	// cut off sends all of it again.
	maxDrained = 64 << 20

	headerAgentServer = "X-Sidecar-Agent-Server"
	headerAgentKey    = "X-Session-API-Key"
)

// webhookSender returns the agent server that a webhook comes from. If the request
// isn't allowed, it answers it and returns false. A key that the agent server
// sends is taken only together with its URL: it sends one to every webhook.
func (a *registerAPI) webhookSender(w http.ResponseWriter, r *http.Request) (conversation.Instance, bool) {
	by := agentOf(r)
	if r.PathValue("agentServer") != by {
		forbidden.with("the token is that of another agent server").write(w)
		return conversation.Instance{}, false
	}
	named := r.Header.Get(headerAgentServer)
	if named == "" {
		return conversation.Instance{AgentServer: by}, true
	}
	at, err := a.named(by, named, r.Header.Get(headerAgentKey))
	switch {
	case errors.Is(err, conversation.ErrForbidden):
		forbidden.with(headerAgentServer + " names another agent server than the token").write(w)
	case err != nil:
		unknownName.with(headerAgentServer + ": " + err.Error()).write(w)
	}
	return at, err == nil
}

// conversationWebhook is called when a conversation was created, changed or is
// about to be deleted.
func (a *registerAPI) conversationWebhook(w http.ResponseWriter, r *http.Request) {
	at, ok := a.webhookSender(w, r)
	if !ok {
		return
	}
	info, err := discovery.ReadInfo(http.MaxBytesReader(w, r.Body, maxWebhook))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		bodyTooLarge.with("a conversation has at most 8 MiB").write(w)
		return
	}
	if err != nil || info.ID == "" {
		invalidRequest.with("want a conversation as the agent server describes it").write(w)
		return
	}
	if info.Deleting {
		err = a.webhookDelete(r, at, info.ID)
	} else {
		err = a.webhookRegister(r, at, info)
	}
	if err != nil {
		a.fail(w, "taking a webhook", err)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// eventsWebhook is called with what happened in a conversation, again and again.
// That it happened is a sign of life; what it was is read only where the
// conversation isn't known yet.
func (a *registerAPI) eventsWebhook(w http.ResponseWriter, r *http.Request) {
	at, ok := a.webhookSender(w, r)
	if !ok {
		return
	}
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	var err error
	if a.owns(at, id) {
		err = a.webhookLives(r, at, id, time.Time{})
	} else if state, bad := discovery.ReadEvents(io.LimitReader(r.Body, maxWebhook)); bad == nil && state != nil && state.ID == id && !state.Deleting {
		err = a.webhookRegister(r, at, *state)
	}
	if err != nil { // a repetition wouldn't help
		a.logger.Debug("webhook of events changed nothing", "agent_server", at.Name(), "conversation", id, "err", err)
	}
	_, _ = io.CopyN(io.Discard, r.Body, maxDrained) // whether it came whole doesn't matter
	w.WriteHeader(http.StatusNoContent)
}

// owns tells whether a conversation is registered for an agent server. One that
// doesn't say which of several it is may be any of them.
func (a *registerAPI) owns(at conversation.Instance, id conversation.ID) bool {
	v, err := a.conversations.Get(id)
	return err == nil && v.AgentServer == at.AgentServer && (at.URL == "" || v.AgentURL == at.URL)
}

func (a *registerAPI) webhookDelete(r *http.Request, at conversation.Instance, id conversation.ID) error {
	if !a.owns(at, id) {
		return nil
	}
	if err := a.conversations.Remove(r.Context(), id); err != nil && !errors.Is(err, conversation.ErrNotFound) {
		return err
	}
	return nil
}

// webhookRegister registers a conversation that uses this sidecar. Of another one
// that is registered all the same it is a sign of life.
func (a *registerAPI) webhookRegister(r *http.Request, at conversation.Instance, info discovery.Info) error {
	reg, ours := info.Registration(a.matcher(), at, conversation.SourceWebhook)
	if !ours {
		if !a.owns(at, info.ID) {
			return nil
		}
		return a.webhookLives(r, at, info.ID, info.UpdatedAt)
	}
	reg.By = at.AgentServer
	_, _, err := a.conversations.Register(r.Context(), reg)
	if _, unlocated := errors.AsType[*conversation.UnlocatedError](err); unlocated {
		// Its own requests will say where it is. A repetition of this one wouldn't.
		a.logger.Debug("webhook doesn't say which agent server it comes from", "agent_server", at.Name(), "conversation", info.ID)
		return nil
	}
	return err
}

func (a *registerAPI) webhookLives(r *http.Request, at conversation.Instance, id conversation.ID, active time.Time) error {
	_, _, err := a.conversations.Register(r.Context(), conversation.Registration{
		ID: id, AgentServer: at.AgentServer, AgentURL: at.URL, Source: conversation.SourceWebhook, LastActive: active, By: at.AgentServer,
	})
	return err
}
