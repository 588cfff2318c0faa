package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// conversationsCmd is about the registered conversations.
type conversationsCmd struct {
	List    listConversationsCmd   `cmd:"" help:"List conversations."`
	Add     addConversationCmd     `cmd:"" help:"Register a conversation, or renew its registration."`
	Remove  removeConversationsCmd `cmd:"" help:"Forget conversations."`
	Refresh refreshCmd             `cmd:"" help:"Refresh conversations whatever their state."`
}

type listConversationsCmd struct {
	adminFlags

	State       string `env:"-" placeholder:"STATE" help:"Only those in this state: current, stale, failed, parked, dormant or unsupported."`
	Server      string `env:"-" placeholder:"NAME" help:"Only those of this server."`
	AgentServer string `env:"-" placeholder:"NAME" help:"Only those of this agent server."`
	Limit       int    `env:"-" placeholder:"N" help:"At most so many (default all)."`
	JSON        bool   `name:"json" env:"-" help:"Print JSON."`
}

// Run implements the command.
func (l *listConversationsCmd) Run(ctx context.Context, con console) error {
	c, err := l.client(con)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	all := []admin.Conversation{}
	q := conversation.Query{State: conversation.State(l.State), Server: l.Server, AgentServer: l.AgentServer, Limit: 1000}
	for l.Limit <= 0 || len(all) < l.Limit {
		if l.Limit > 0 {
			q.Limit = min(1000, l.Limit-len(all))
		}
		page, err := c.Conversations(ctx, q)
		if err != nil {
			return err
		}
		all = append(all, page.Conversations...)
		if page.Next == "" {
			break
		}
		q.Cursor = page.Next
	}
	if l.JSON {
		return printJSON(con.stdout, admin.ConversationPage{Conversations: all})
	}
	return printConversations(con.stdout, all, time.Now())
}

func printConversations(w io.Writer, all []admin.Conversation, now time.Time) error {
	if len(all) == 0 {
		fmt.Fprintln(w, "no conversations")
		return nil
	}
	t := newTable(w, "CONVERSATION", "AGENT SERVER", "STATE", "APPLIED", "ATTEMPTS", "LAST ERROR", "NEXT ATTEMPT")
	for _, c := range all {
		var applied []string
		for _, s := range c.Servers {
			applied = append(applied, standing(s))
		}
		lastError, next := "", ""
		if c.LastError != nil {
			lastError = c.LastError.Reason
		}
		if c.NextAttempt != nil {
			next = "in " + c.NextAttempt.Sub(now).Round(time.Second).String()
			if !c.NextAttempt.After(now) {
				next = "now"
			}
		}
		t.row(c.ID, strings.TrimSpace(c.AgentServer+" "+c.AgentURL), c.State, strings.Join(applied, ", "), strconv.Itoa(c.Attempts), lastError, next)
	}
	return t.flush()
}

// standing is "name 2 of 3 (observed)".
func standing(s admin.Standing) string {
	out := fmt.Sprintf("%s %d of %d", s.Name, s.Applied, s.Desired)
	if s.How != "" {
		out += " (" + s.How + ")"
	}
	return out
}

type addConversationCmd struct {
	adminFlags

	ID          string   `arg:"" help:"The conversation's id at its agent server."`
	AgentServer string   `env:"-" placeholder:"NAME" help:"Its agent server, by name or URL (default: the only one, or the one named default)."`
	Server      []string `env:"-" placeholder:"NAME" help:"A server that it uses (repeatable; default all)."`
	JSON        bool     `name:"json" env:"-" help:"Print JSON."`
}

// Run implements the command.
func (a *addConversationCmd) Run(ctx context.Context, con console) error {
	c, err := a.client(con)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	v, err := c.Register(ctx, a.ID, admin.Registration{AgentServer: a.AgentServer, Servers: a.Server})
	if err != nil {
		return err
	}
	if a.JSON {
		return printJSON(con.stdout, v)
	}
	return printConversations(con.stdout, []admin.Conversation{v}, time.Now())
}

type removeConversationsCmd struct {
	adminFlags

	ID []string `arg:"" help:"Ids of conversations."`
}

// Run implements the command.
func (r *removeConversationsCmd) Run(ctx context.Context, con console) error {
	return forEach(ctx, con, r.adminFlags, r.ID, "removed %s\n", (*admin.Client).Remove)
}

type refreshCmd struct {
	adminFlags

	ID []string `arg:"" help:"Ids of conversations."`
}

// Run implements the command.
func (r *refreshCmd) Run(ctx context.Context, con console) error {
	return forEach(ctx, con, r.adminFlags, r.ID, "asked for a refresh of %s\n", func(c *admin.Client, ctx context.Context, id string) error {
		_, err := c.Refresh(ctx, id)
		return err
	})
}

// forEach does something with every conversation and goes on after an error.
func forEach(ctx context.Context, con console, f adminFlags, ids []string, done string, do func(*admin.Client, context.Context, string) error) error {
	c, err := f.client(con)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, adminTimeout)
	defer cancel()
	var errs []error
	for _, id := range ids {
		if err := do(c, ctx, id); err != nil {
			if _, ok := errors.AsType[*admin.Error](err); !ok {
				return err // the sidecar can't be reached: nor will it for the others
			}
			errs = append(errs, fmt.Errorf("%s: %w", plain(id), err))
			continue
		}
		fmt.Fprintf(con.stdout, done, plain(id))
	}
	return errors.Join(errs...)
}
