package conversation_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const (
	urlA = "https://a.example.com"
	urlB = "https://b.example.com"
)

// sandboxes adds a pattern to the agent servers.
func sandboxes(h *harness) conversation.RegistryConfig {
	h.t.Helper()
	cfg := testConfig()
	cfg.AgentServers["sandboxes"] = conversation.AgentServerSettings{IdleAfter: idleAfter, Pattern: true}
	if err := h.SetConfig(cfg); err != nil {
		h.t.Fatal(err)
	}
	return cfg
}

func (h *harness) wantAt(id conversation.ID, agent, url string) {
	h.t.Helper()
	got, ok := h.Where(id)
	if want := (conversation.Instance{AgentServer: agent, URL: url}); !ok || got != want {
		h.t.Errorf("%q is at %+v (%v), want %+v", id, got, ok, want)
	}
}

func TestRegisterAtPattern(t *testing.T) {
	bubble(t, func(h *harness) {
		sandboxes(h)
		_, _, err := h.Register(h.t.Context(), conversation.Registration{ID: "x", AgentServer: "sandboxes", Source: conversation.SourceAdmin})
		if unlocated, ok := errors.AsType[*conversation.UnlocatedError](err); !ok || unlocated.AgentServer != "sandboxes" {
			h.t.Errorf("without a URL: %v", err)
		}
		h.register(conversation.Registration{ID: "x", AgentServer: "sandboxes", AgentURL: urlA, Source: conversation.SourceWebhook})
		h.wantAt("x", "sandboxes", urlA)

		// Nobody but the operator moves it.
		for _, reg := range []conversation.Registration{
			{ID: "x", AgentServer: "sandboxes", AgentURL: urlB, Source: conversation.SourceDiscovery},
			{ID: "x", AgentServer: "sandboxes", AgentURL: urlB, Source: conversation.SourceAdmin, By: "sandboxes"},
			{ID: "x", AgentServer: "sandboxes", Source: conversation.SourceAdmin},
		} {
			h.register(reg)
			h.wantAt("x", "sandboxes", urlA)
		}
		h.failed(h.view("x"), conversation.ConditionParked, time.Hour)
		h.register(conversation.Registration{ID: "x", AgentServer: "sandboxes", AgentURL: urlB, Source: conversation.SourceAdmin})
		h.wantAt("x", "sandboxes", urlB)
		if v := h.view("x"); v.Condition != conversation.ConditionNone {
			h.t.Errorf("after it moved, its condition is %q", v.Condition)
		}

		// Elsewhere a URL means nothing.
		h.register(conversation.Registration{ID: "y", AgentServer: "second", AgentURL: urlA})
		h.wantAt("y", "second", "")
	})
}

func TestPatternBecomesOneServer(t *testing.T) {
	bubble(t, func(h *harness) {
		cfg := sandboxes(h)
		h.settle("tools", "A")
		h.register(conversation.Registration{ID: "x", AgentServer: "sandboxes", AgentURL: urlA})
		h.wantDue("x")
		cfg.AgentServers["sandboxes"] = conversation.AgentServerSettings{}
		if err := h.SetConfig(cfg); err != nil {
			h.t.Fatal(err)
		}
		h.wantDue() // where it is, isn't known
		h.register(conversation.Registration{ID: "x", AgentServer: "sandboxes"})
		h.wantAt("x", "sandboxes", "")
		h.wantDue("x")
		sandboxes(h)
		h.wantDue()
		h.Seen(conversation.Sighting{ID: "x", AgentServer: "sandboxes", AgentURL: urlB, Server: "tools", Source: conversation.SourceURL})
		h.wantAt("x", "sandboxes", urlB)
		h.wantDue("x")
	})
}

func TestSeenAtPattern(t *testing.T) {
	bubble(t, func(h *harness) {
		sandboxes(h)
		seen := func(id conversation.ID, url string) {
			h.Seen(conversation.Sighting{ID: id, AgentServer: "sandboxes", AgentURL: url, AgentKey: "canary", Server: "tools", Source: conversation.SourceHeader})
		}
		seen("x", "")
		if _, ok := h.Where("x"); ok {
			h.t.Error("traffic registers a conversation that can't be called")
		}
		seen("x", urlA)
		h.wantAt("x", "sandboxes", urlA)
		seen("x", urlB)
		h.wantAt("x", "sandboxes", urlA)
		if _, err := h.Update(h.t.Context(), "x", func(c *conversation.Conversation) error { c.Relocate(urlB); return nil }); err != nil {
			h.t.Fatal(err)
		}
		seen("y", urlB)
		want := map[conversation.Instance]int{{AgentServer: "sandboxes", URL: urlB}: 2}
		if diff := cmp.Diff(want, h.Instances()); diff != "" {
			h.t.Errorf("instances (-want +got):\n%s", diff)
		}
		h.stop()
		h = start(h.t, h.store, testConfig())
		sandboxes(h)
		h.wantAt("x", "sandboxes", urlB)
		h.wantAt("y", "sandboxes", urlB)
	})
}

// TestDiscoveredAfterRemoval has discovery find what was listed before it was removed.
func TestDiscoveredAfterRemoval(t *testing.T) {
	bubble(t, func(h *harness) {
		reg := conversation.Registration{ID: "x", AgentServer: "default", Source: conversation.SourceDiscovery}
		h.register(reg)
		if err := h.Remove(h.t.Context(), "x"); err != nil {
			h.t.Fatal(err)
		}
		_, _, err := h.Register(h.t.Context(), reg)
		wantErr(h.t, "at once", err, conversation.ErrRemoved)
		time.Sleep(2 * time.Minute)
		h.register(reg)
		if err := h.Remove(h.t.Context(), "x"); err != nil {
			h.t.Fatal(err)
		}
		h.register(conversation.Registration{ID: "x", Source: conversation.SourceWebhook}) // that is news
	})
}

func TestKeyDoesNotShow(t *testing.T) {
	s := conversation.Sighting{ID: "x", AgentKey: "canary"}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("seen", "sighting", s, "key", s.AgentKey)
	slog.New(slog.NewTextHandler(&log, nil)).Info("seen", "sighting", s, "key", s.AgentKey)
	b, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("%v %+v %#v %s %q %x", s, s, s, s.AgentKey, s.AgentKey, s.AgentKey) + log.String() + string(b)
	if strings.Contains(text, "canary") {
		t.Errorf("the key shows: %s", text)
	}
}
