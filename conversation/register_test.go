package conversation_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

func TestRegister(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		reg := conversation.Registration{
			ID: "0F8FAD5BD9CB469FA16570867728950E", AgentServer: "default", Servers: []string{"tools"}, Source: conversation.SourceAdmin,
		}
		c, created, err := h.Register(t.Context(), reg)
		if err != nil || !created || c.ID != "0f8fad5b-d9cb-469f-a165-70867728950e" || c.Revision == 0 {
			t.Fatalf("Register: %+v, created %t, %v", c, created, err)
		}
		h.refreshed(h.view(c.ID), conversation.HowAcknowledged)
		writes := h.store.writes.Load()

		time.Sleep(time.Minute)
		again, created, err := h.Register(t.Context(), reg)
		if err != nil || created || !again.RegisteredAt.Equal(c.RegisteredAt) {
			t.Errorf("renewing: %+v, created %t, %v", again, created, err)
		}
		h.wantState(c.ID, conversation.StateCurrent)
		if n := h.store.writes.Load(); n != writes {
			t.Errorf("a renewal that changes nothing wrote %d times", n-writes)
		}
		if v := h.view(c.ID); !v.RenewedAt.Equal(time.Now()) {
			t.Errorf("renewed at %v", v.RenewedAt)
		}

		reg.Servers = nil
		if _, _, err := h.Register(t.Context(), reg); err != nil {
			t.Fatal(err)
		}
		if v := h.view(c.ID); len(v.Servers) != 1 || v.State != conversation.StateCurrent {
			t.Errorf("renewing without servers changed them: %+v", v)
		}
		reg.Servers = []string{"other"}
		if _, _, err := h.Register(t.Context(), reg); err != nil {
			t.Fatal(err)
		}
		if v := h.view(c.ID); len(v.Servers) != 1 || v.Servers["other"].Applied != 0 {
			t.Errorf("the operator's servers don't replace those before: %+v", v)
		}
		reg.Servers, reg.Source = []string{"tools"}, conversation.SourceWebhook
		if _, _, err := h.Register(t.Context(), reg); err != nil {
			t.Fatal(err)
		}
		if v := h.view(c.ID); len(v.Servers) != 2 || v.Source != conversation.SourceAdmin || v.State != conversation.StateStale {
			t.Errorf("a webhook's servers don't add to the operator's: %+v", v)
		}
	})
}

func TestRegisterDefaults(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		c, _, err := h.Register(t.Context(), conversation.Registration{ID: "a", Source: conversation.SourceAdmin})
		if err != nil || c.AgentServer != "default" || len(c.Servers) != 2 {
			t.Errorf("Register without names: %+v, %v", c, err)
		}
		cfg := testConfig()
		delete(cfg.AgentServers, "default")
		if err := h.SetConfig(cfg); err != nil {
			t.Fatal(err)
		}
		c, _, err = h.Register(t.Context(), conversation.Registration{ID: "b", Source: conversation.SourceAdmin})
		if err != nil || c.AgentServer != "second" {
			t.Errorf("Register where one agent server is configured: %+v, %v", c, err)
		}
	})
}

func TestRegisterRefuses(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.register(conversation.Registration{ID: "theirs", AgentServer: "second"})
		base := conversation.Registration{ID: "c", AgentServer: "default", Servers: []string{"tools"}, Source: conversation.SourceAdmin}
		for name, test := range map[string]struct {
			change func(*conversation.Registration)
			want   error // nil is *UnknownNameError
			text   string
		}{
			"id":           {func(r *conversation.Registration) { r.ID = "../c" }, conversation.ErrInvalid, "conversation id"},
			"source":       {func(r *conversation.Registration) { r.Source = "rumour" }, conversation.ErrInvalid, "source"},
			"no source":    {func(r *conversation.Registration) { r.Source = "" }, conversation.ErrInvalid, "source"},
			"ttl":          {func(r *conversation.Registration) { r.TTL = -1 }, conversation.ErrInvalid, "TTL"},
			"agent server": {func(r *conversation.Registration) { r.AgentServer = "x" }, nil, "unknown agent server \"x\": configured are default, second"},
			"server":       {func(r *conversation.Registration) { r.Servers = []string{"tools", "x"} }, nil, "unknown server \"x\": configured are other, tools"},
			"address as agent server": {
				func(r *conversation.Registration) { r.AgentServer = "http://169.254.169.254/" }, nil, "unknown agent server",
			},
			"for another": {func(r *conversation.Registration) { r.By = "second" }, conversation.ErrForbidden, "only register its own"},
			"another's": {func(r *conversation.Registration) {
				r.ID, r.By, r.Source = "theirs", "default", conversation.SourceWebhook
			}, conversation.ErrForbidden, "another agent server"},
			"another's, without saying so": {func(r *conversation.Registration) {
				r.ID, r.AgentServer, r.By, r.Source = "theirs", "", "default", conversation.SourceAdmin
			}, conversation.ErrForbidden, "another agent server"},
			"found at another": {func(r *conversation.Registration) {
				r.ID, r.Source = "theirs", conversation.SourceDiscovery
			}, conversation.ErrForbidden, "another agent server"},
		} {
			reg := base
			test.change(&reg)
			_, _, err := h.Register(t.Context(), reg)
			if err == nil || !strings.Contains(err.Error(), test.text) {
				t.Errorf("%s: %v; want %q", name, err, test.text)
			}
			if test.want != nil && !errors.Is(err, test.want) {
				t.Errorf("%s: %v; want %v", name, err, test.want)
			}
			if _, ok := errors.AsType[*conversation.UnknownNameError](err); test.want == nil && !ok {
				t.Errorf("%s: %v (%T); want *UnknownNameError", name, err, err)
			}
		}
		if v := h.view("theirs"); v.AgentServer != "second" {
			t.Errorf("moved to %q", v.AgentServer)
		}
		if _, err := h.Get("c"); !errors.Is(err, conversation.ErrNotFound) {
			t.Errorf("a refused registration is there: %v", err)
		}
	})
}

func TestMoves(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c", AgentServer: "second"})
		h.refreshed(h.view("c"), conversation.HowObserved)

		h.register(conversation.Registration{ID: "c", AgentServer: "default"}) // the operator
		if v := h.view("c"); v.AgentServer != "default" || v.State != conversation.StateStale {
			t.Errorf("after the operator moved it: %+v", v)
		}

		// An agent server that isn't configured any more has no claim.
		cfg := testConfig()
		delete(cfg.AgentServers, "default")
		if err := h.SetConfig(cfg); err != nil {
			t.Fatal(err)
		}
		h.wantDue()
		h.register(conversation.Registration{ID: "c", AgentServer: "second", By: "second", Source: conversation.SourceWebhook})
		if v := h.view("c"); v.AgentServer != "second" {
			t.Errorf("still at %q", v.AgentServer)
		}
		h.wantDue("c")
	})
}

func TestRemove(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		wantErr(t, "Remove of none", h.Remove(t.Context(), "c"), conversation.ErrNotFound)
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "c"})
		if err := h.Remove(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		h.wantDue()
		_, err := h.Get("c")
		wantErr(t, "Get of what was removed", err, conversation.ErrNotFound)
		_, err = h.Update(t.Context(), "c", func(*conversation.Conversation) error { return nil })
		wantErr(t, "Update of what was removed", err, conversation.ErrNotFound)

		h.seen("c", "tools") // the last request of it, maybe
		_, err = h.Get("c")
		wantErr(t, "Get after late traffic", err, conversation.ErrNotFound)
		time.Sleep(time.Minute)
		h.seen("c", "tools")
		h.wantState("c", conversation.StateStale)

		if err := h.Remove(t.Context(), "c"); err != nil {
			t.Fatal(err)
		}
		h.register(conversation.Registration{ID: "c"})
		h.wantState("c", conversation.StateStale)
	})
}

func TestTTL(t *testing.T) {
	bubble(t, func(h *harness) {
		t := h.t
		const ttl = 7 * 24 * time.Hour
		h.register(conversation.Registration{ID: "admin"})
		h.register(conversation.Registration{ID: "admin-ttl", TTL: ttl})
		h.register(conversation.Registration{ID: "config", Source: conversation.SourceConfig})
		h.register(conversation.Registration{ID: "webhook", Source: conversation.SourceWebhook})
		h.register(conversation.Registration{ID: "renewed", Source: conversation.SourceDiscovery})
		h.register(conversation.Registration{ID: "short", Source: conversation.SourceDiscovery, TTL: time.Hour})
		h.seen("traffic", "tools")
		h.seen("once", "tools")
		if v := h.view("webhook"); !v.ExpiresAt.Equal(time.Now().Add(ttl)) {
			t.Errorf("webhook expires at %v", v.ExpiresAt)
		}
		if v := h.view("admin"); !v.ExpiresAt.IsZero() {
			t.Errorf("admin expires at %v", v.ExpiresAt)
		}
		time.Sleep(2 * time.Hour)
		h.wantGone("short")
		time.Sleep(ttl - 3*time.Hour)
		h.seen("traffic", "tools")
		h.register(conversation.Registration{ID: "renewed", Source: conversation.SourceDiscovery})
		h.wantThere("admin-ttl", "webhook", "once")
		h.stop()
		h = h.restart() // the signs of life were stored
		time.Sleep(2 * time.Hour)
		h.wantThere("admin", "config", "traffic", "renewed")
		h.wantGone("admin-ttl", "webhook", "once")
		time.Sleep(ttl)
		h.wantThere("admin", "config")
		h.wantGone("traffic", "renewed")
		h = h.restart()
		h.wantThere("admin", "config")
		h.wantGone("traffic", "renewed", "webhook")
	})
}

func (h *harness) wantThere(ids ...conversation.ID) {
	h.t.Helper()
	for _, id := range ids {
		if _, err := h.Get(id); err != nil {
			h.t.Errorf("%q: %v", id, err)
		}
	}
}

func (h *harness) wantGone(ids ...conversation.ID) {
	h.t.Helper()
	for _, id := range ids {
		if _, err := h.Get(id); !errors.Is(err, conversation.ErrNotFound) {
			h.t.Errorf("%q is still there (%v)", id, err)
		}
	}
}
