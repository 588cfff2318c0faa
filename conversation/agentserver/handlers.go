package agentserver

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
)

// message is what a user says: the initial message of a conversation, or an event.
type message struct {
	Role    string `json:"role"`
	Content []struct {
		Text string `json:"text"`
	} `json:"content"`
}

func (m message) text() string {
	texts := make([]string, len(m.Content))
	for i, part := range m.Content {
		texts[i] = part.Text
	}
	return strings.Join(texts, "\n")
}

func (s *Server) createConversation(w http.ResponseWriter, r *http.Request) {
	var body struct {
		ConversationID *string  `json:"conversation_id"`
		InitialMessage *message `json:"initial_message"`
		Agent          *struct {
			MCPConfig json.RawMessage `json:"mcp_config"`
		} `json:"agent"`
	}
	if !decode(w, r, &body) {
		return
	}
	if body.Agent == nil {
		answerInvalid(w, invalid{"missing", []string{"body", "agent"}, "Field required"})
		return
	}
	var create CreateRequest
	if body.ConversationID != nil {
		id, err := ParseID(*body.ConversationID)
		if err != nil {
			answerInvalid(w, invalidID("body"))
			return
		}
		create.ID = id
	}
	servers, problem := serversFrom(body.Agent.MCPConfig)
	if problem != nil {
		answerInvalid(w, *problem)
		return
	}
	create.Servers = servers

	c, created, err := s.Create(r.Context(), create)
	switch {
	case errors.Is(err, ErrFull):
		answer(w, http.StatusServiceUnavailable, failure{Detail: "Internal Server Error", Exception: "503: " + ErrFull.Error()})
		return
	case err != nil:
		answerFailure(w, err)
		return
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	if created && body.InitialMessage != nil {
		c.Append(Event{Kind: KindMessage, Source: body.InitialMessage.Role, Text: body.InitialMessage.text()})
		if err := c.Start(r.Context()); err != nil {
			s.fail(w, "message", err)
			return
		}
	}
	answer(w, status, c.Info())
}

func (s *Server) searchConversations(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit, ok := pageLimit(w, r)
	if !ok {
		return
	}
	from := ID("")
	if text := query.Get("page_id"); text != "" {
		from, _ = ParseID(text) // an id that nothing can have begins at page one too
	}
	infos := s.infos()
	if !sortInfos(infos, query.Get("sort_order")) {
		answerInvalid(w, invalid{
			"enum",
			[]string{"query", "sort_order"},
			"Input should be 'CREATED_AT', 'UPDATED_AT', 'CREATED_AT_DESC' or 'UPDATED_AT_DESC'",
		})
		return
	}
	answer(w, http.StatusOK, paginate(infos, func(i Info) string { return i.ID.Hex() }, from.Hex(), limit))
}

func (s *Server) countConversations(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	n := len(s.conversations)
	s.mu.Unlock()
	answer(w, http.StatusOK, n)
}

func (s *Server) infos() []Info {
	all := s.Conversations()
	infos := make([]Info, len(all))
	for i, c := range all {
		infos[i] = c.Info()
	}
	return infos
}

func (s *Server) getConversation(w http.ResponseWriter, r *http.Request) {
	if c := s.conversationOf(w, r, "Not Found"); c != nil {
		answer(w, http.StatusOK, c.Info())
	}
}

func (s *Server) deleteConversation(w http.ResponseWriter, r *http.Request) {
	id, err := ParseID(r.PathValue("id"))
	if err != nil {
		answerInvalid(w, invalidID("path"))
		return
	}
	if err := s.Delete(id); err != nil {
		answer(w, http.StatusBadRequest, detail{"Bad Request"})
		return
	}
	answer(w, http.StatusOK, success{true})
}

func (s *Server) refreshTools(w http.ResponseWriter, r *http.Request) {
	c := s.conversationOf(w, r, "Not Found")
	if c == nil {
		return
	}
	if err := c.RefreshMCPTools(r.Context()); err != nil {
		s.fail(w, "refresh_mcp_tools", err)
		return
	}
	answer(w, http.StatusOK, success{true})
}

func (s *Server) reconnectClients(w http.ResponseWriter, r *http.Request) {
	c := s.conversationOf(w, r, "Not Found")
	if c == nil {
		return
	}
	statuses, err := c.ReconnectMCP(r.Context())
	if _, ok := errors.AsType[*RefreshError](err); err != nil && !ok {
		s.fail(w, "reconnect_mcp", err)
		return
	}
	answer(w, http.StatusOK, map[string][]ClientStatus{"servers": statuses})
}

func (s *Server) getTools(w http.ResponseWriter, r *http.Request) {
	if c := s.conversationOf(w, r, "Not Found"); c != nil {
		answer(w, http.StatusOK, map[string][]Tool{"tools": c.Tools()})
	}
}

func (s *Server) addEvent(w http.ResponseWriter, r *http.Request) {
	c := s.conversationOf(w, r, "Conversation not found: ")
	var body message
	if c == nil || !decode(w, r, &body) {
		return
	}
	c.Append(Event{Kind: KindMessage, Source: body.Role, Text: body.text()})
	if err := c.Start(r.Context()); err != nil {
		s.fail(w, "message", err)
		return
	}
	answer(w, http.StatusOK, success{true})
}

func (s *Server) searchEvents(w http.ResponseWriter, r *http.Request) {
	c := s.conversationOf(w, r, "Conversation not found: ")
	if c == nil {
		return
	}
	limit, ok := pageLimit(w, r)
	if !ok {
		return
	}
	answer(w, http.StatusOK, paginate(c.History(), func(e Event) string { return e.ID }, r.URL.Query().Get("page_id"), limit))
}

// conversationOf returns the conversation that the path names. When there is none
// it has answered: notFound, followed by the id where notFound ends in a space.
func (s *Server) conversationOf(w http.ResponseWriter, r *http.Request, notFound string) *Conversation {
	id, err := ParseID(r.PathValue("id"))
	if err != nil {
		answerInvalid(w, invalidID("path"))
		return nil
	}
	c, err := s.Conversation(id)
	if err != nil {
		if strings.HasSuffix(notFound, " ") {
			notFound += string(id)
		}
		answer(w, http.StatusNotFound, detail{notFound})
		return nil
	}
	return c
}

// fail logs why an action failed and answers that it did.
func (s *Server) fail(w http.ResponseWriter, action string, err error) {
	s.logger.Warn("action failed", "action", action, "err", err)
	answerFailure(w, err)
}

// decode reads the body's JSON. When it can't, it has answered.
func decode(w http.ResponseWriter, r *http.Request, into any) bool {
	raw, err := io.ReadAll(r.Body)
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		answer(w, http.StatusRequestEntityTooLarge, detail{"Request Entity Too Large"})
		return false
	}
	switch {
	case err != nil:
		answer(w, http.StatusBadRequest, detail{"There was an error parsing the body"})
	case !json.Valid(raw):
		answerInvalid(w, invalid{"json_invalid", []string{"body"}, "JSON decode error"})
	case json.Unmarshal(raw, into) != nil:
		answerInvalid(w, invalid{"value_error", []string{"body"}, "Value error, a member has the wrong type"})
	default:
		return true
	}
	return false
}

func invalidID(where string) invalid {
	loc := []string{where, "conversation_id"}
	return invalid{"uuid_parsing", loc, "Input should be a valid UUID"}
}
