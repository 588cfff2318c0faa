package admin

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// fake is a sidecar with one server and the agent servers "default" and "other".
type fake struct {
	mu         sync.Mutex
	views      map[conversation.ID]conversation.View
	registered []conversation.Registration
	refreshed  []conversation.ID
	err        error // what everything fails with, if set
	reload     error
	quiesced   bool
}

func newFake() *fake { return &fake{views: map[conversation.ID]conversation.View{}} }

func (f *fake) Servers() []Server {
	return []Server{{Name: "default", Path: "/mcp", State: "settled", Generation: 2, Tools: []Tool{{Name: "add", Digest: "00"}}}}
}

func (f *fake) Server(name string) (Server, error) {
	if name != "default" {
		return Server{}, ErrUnknownServer
	}
	return f.Servers()[0], nil
}

func (f *fake) Check(_ context.Context, name string) (Server, error) {
	if name != "default" {
		return Server{}, ErrUnknownServer
	}
	return f.Servers()[0], f.err
}

func (f *fake) Register(_ context.Context, r conversation.Registration) (conversation.Conversation, bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return conversation.Conversation{}, false, f.err
	}
	agent := cmp.Or(r.AgentServer, "default")
	if agent != "default" && agent != "other" {
		return conversation.Conversation{}, false, &conversation.UnknownNameError{Kind: "agent server", Name: agent, Known: []string{"default", "other"}}
	}
	if r.By != "" && r.By != agent {
		return conversation.Conversation{}, false, conversation.ErrForbidden
	}
	old, exists := f.views[r.ID]
	if exists && r.By != "" && old.AgentServer != r.By {
		return conversation.Conversation{}, false, conversation.ErrForbidden
	}
	v := conversation.View{State: conversation.StateStale, Servers: map[string]conversation.ServerView{"default": {Desired: 2, Applied: 1, How: conversation.HowObserved}}}
	v.ID, v.AgentServer, v.AgentURL, v.Source, v.CreatedAt = r.ID, agent, r.AgentURL, r.Source, r.CreatedAt
	f.views[r.ID] = v
	f.registered = append(f.registered, r)
	return v.Conversation, !exists, nil
}

// put makes a conversation known.
func (f *fake) put(id conversation.ID, agent string) {
	v := conversation.View{}
	v.ID, v.AgentServer = id, agent
	f.views[id] = v
}

func (f *fake) Remove(_ context.Context, id conversation.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.views[id]; !ok {
		return conversation.ErrNotFound
	}
	delete(f.views, id)
	return f.err
}

func (f *fake) Get(id conversation.ID) (conversation.View, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	v, ok := f.views[id]
	if !ok {
		return v, conversation.ErrNotFound
	}
	return v, nil
}

func (f *fake) List(q conversation.Query) (conversation.Page, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var p conversation.Page
	for _, v := range f.views {
		if q.State == "" || v.State == q.State {
			p.Items = append(p.Items, v)
		}
	}
	slices.SortFunc(p.Items, func(a, b conversation.View) int { return strings.Compare(string(a.ID), string(b.ID)) })
	if q.Limit > 0 && len(p.Items) > q.Limit {
		p.Items, p.Next = p.Items[:q.Limit], "more"
	}
	return p, f.err
}

func (f *fake) Refresh(_ context.Context, id conversation.ID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, ok := f.views[id]; !ok {
		return conversation.ErrNotFound
	}
	f.refreshed = append(f.refreshed, id)
	return f.err
}

func (f *fake) Status() Status { return Status{Version: "v1", Servers: f.Servers()} }

func (f *fake) Reload(context.Context) error { return f.reload }

func (f *fake) Quiesce(context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.quiesced = true
	return f.err
}

func (f *fake) deps(feed *Feed) Deps {
	return Deps{Servers: f, Conversations: f, Control: f, Feed: feed}
}

var errSecret = errors.New("the secret is s3cr3t")

func at(s string) *time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return &t
}
