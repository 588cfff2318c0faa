package admin

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// operator is who registers through the admin listener.
const operator = ""

// registrar is what both listeners do with registrations.
type registrar struct {
	conversations Conversations
	logger        *slog.Logger
}

// put registers or renews the conversation in the path for by, which is an agent
// server or the operator. An agent server registers for itself only.
func (g *registrar) put(w http.ResponseWriter, r *http.Request, by string) {
	id, ok := pathID(w, r)
	if !ok {
		return
	}
	body, ok := readRegistration(w, r)
	if !ok {
		return
	}
	if by != operator && body.AgentServer == "" {
		body.AgentServer = by
	}
	reg := conversation.Registration{ID: id, AgentServer: body.AgentServer, Servers: body.Servers, Source: conversation.SourceAdmin, By: by}
	if body.CreatedAt != nil {
		reg.CreatedAt = *body.CreatedAt
	}
	_, created, err := g.conversations.Register(r.Context(), reg)
	if err != nil {
		g.fail(w, "registering a conversation", err)
		return
	}
	v, err := g.conversations.Get(id)
	if err != nil {
		g.fail(w, "reading a conversation", err)
		return
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	writeJSON(w, status, newConversation(v))
}

// fail answers with what an error of the registry means to the caller.
func (g *registrar) fail(w http.ResponseWriter, doing string, err error) {
	p := toProblem(err)
	if p.Status == http.StatusInternalServerError {
		g.logger.Error("admin request failed", "operation", doing, "err", err)
	}
	p.write(w)
}

func toProblem(err error) *Error {
	if name, ok := errors.AsType[*conversation.UnknownNameError](err); ok {
		return unknownName.with(name.Error())
	}
	if which, ok := errors.AsType[*conversation.UnlocatedError](err); ok {
		return unknownName.with(which.Error())
	}
	switch {
	case errors.Is(err, conversation.ErrNotFound):
		return unknownConversation.with("the conversation isn't registered: it never was, was removed, or its time is over")
	case errors.Is(err, conversation.ErrInvalid):
		return invalidRequest.with(err.Error())
	case errors.Is(err, conversation.ErrForbidden):
		return forbidden.with("the conversation belongs to another agent server")
	case errors.Is(err, conversation.ErrUnavailable), errors.Is(err, conversation.ErrClosed), errors.Is(err, conversation.ErrConflict):
		return unavailable.with("the store can't take the change now: try again")
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return timedOut.with("")
	}
	return internal.with("see the log of the sidecar")
}

// pathID returns the id in the path. If that isn't one, it answers the request
// and returns false.
func pathID(w http.ResponseWriter, r *http.Request) (conversation.ID, bool) {
	id, err := conversation.ParseID(r.PathValue("id"))
	if err != nil {
		invalidRequest.with(err.Error()).write(w)
		return "", false
	}
	return id, true
}

// readRegistration reads the body of a PUT, which may be empty. If there is
// something wrong with it, it answers the request and returns false.
func readRegistration(w http.ResponseWriter, r *http.Request) (Registration, bool) {
	var reg Registration
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(&reg)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is something after the JSON object")
		}
	}
	if errors.Is(err, io.EOF) {
		return reg, true
	}
	if err == nil {
		return reg, true
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		bodyTooLarge.with("a registration has at most 64 KiB").write(w)
		return reg, false
	}
	invalidRequest.with(`want a JSON object such as {"agentServer":"default","servers":["default"]}: ` + strings.TrimPrefix(err.Error(), "json: ")).write(w)
	return reg, false
}
