package agentserver_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

func TestRemoteConversation(t *testing.T) {
	b := newBackend(t, "add")
	s := newServer(t, agentserver.Deps{Keys: func() ([]string, error) { return []string{"right"}, nil }})
	serving := httptest.NewServer(http.StripPrefix("/prefix", s))
	t.Cleanup(serving.Close)
	key := "right"
	client, err := agentserver.NewClient(agentserver.ClientConfig{
		URL:    serving.URL + "/prefix",
		APIKey: func() (string, error) { return key, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })

	request := agentserver.CreateRequest{ID: unknownID, Servers: []agentserver.MCPServer{b.as("backend")}}
	for _, wantNew := range []bool{true, false} {
		remote, isNew, err := client.Create(t.Context(), request)
		if err != nil || isNew != wantNew || remote.ID() != unknownID {
			t.Fatalf("create: %v %v %v", remote, isNew, err)
		}
	}
	remote, err := client.Conversation(unknownID)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.RefreshMCPTools(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantCalls(t, b, initialize, initialized, list)
	info, err := remote.Info(t.Context())
	if err != nil || len(info.Servers()) != 1 || info.Servers()[0].URL != b.url() {
		t.Errorf("info: %+v %v", info, err)
	}

	key = "wrong"
	if err := remote.RefreshMCPTools(t.Context()); !errors.Is(err, agentserver.ErrUnauthorized) {
		t.Errorf("wrong key: %v", err)
	}
	key = "right"
	b.stop()
	err = remote.RefreshMCPTools(t.Context())
	if status, ok := errors.AsType[*agentserver.StatusError](err); !ok || status.Code != 500 || !strings.Contains(err.Error(), "1 sub-exception") {
		t.Errorf("failed refresh: %v", err)
	}
	b.start(t, "add")
	if err := remote.Delete(t.Context()); err != nil {
		t.Error(err)
	}
	if err := remote.RefreshMCPTools(t.Context()); !errors.Is(err, agentserver.ErrNotFound) {
		t.Errorf("deleted conversation: %v", err)
	}
}

func TestRemoteErrors(t *testing.T) {
	const key = "canary"
	remote := func(t *testing.T, h http.Handler) *agentserver.RemoteConversation {
		t.Helper()
		serving := httptest.NewServer(h)
		t.Cleanup(serving.Close)
		client, err := agentserver.NewClient(agentserver.ClientConfig{
			URL: serving.URL + "?q=" + key, APIKey: func() (string, error) { return key, nil },
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		c, err := client.Conversation(unknownID)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	answering := func(status int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		})
	}

	without := newServer(t, agentserver.Deps{}, func(cfg *agentserver.Config) { cfg.Action = agentserver.ActionNone })
	if err := remote(t, without).RefreshMCPTools(t.Context()); !errors.Is(err, agentserver.ErrUnsupported) {
		t.Errorf("no such action: %v", err)
	}
	for status, body := range map[int]string{422: `{"detail":[{"type":"x"}]}`, 502: `<html>` + key, 503: `{"detail":"x","exception":"503: busy"}`} {
		err := remote(t, answering(status, body)).RefreshMCPTools(t.Context())
		got, ok := errors.AsType[*agentserver.StatusError](err)
		if !ok || got.Code != status || strings.Contains(err.Error(), key) {
			t.Errorf("%d: %v", status, err)
		}
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("redirect was followed") }))
	t.Cleanup(elsewhere.Close)
	err := remote(t, http.RedirectHandler(elsewhere.URL, http.StatusPermanentRedirect)).RefreshMCPTools(t.Context())
	if got, ok := errors.AsType[*agentserver.StatusError](err); !ok || got.Code != 308 {
		t.Errorf("redirect: %v", err)
	}

	client, err := agentserver.NewClient(agentserver.ClientConfig{
		URL: "http://127.0.0.1:1", APIKey: func() (string, error) { return "", errors.New("no key file") },
	})
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Conversation(unknownID)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.RefreshMCPTools(t.Context()); err == nil || !strings.Contains(err.Error(), "no key file") {
		t.Errorf("unreadable key: %v", err)
	}
	if _, err := client.Conversation("../x"); err == nil {
		t.Error("an id that isn't one: want an error")
	}
	if _, err := agentserver.NewClient(agentserver.ClientConfig{URL: "unix:///x"}); err == nil {
		t.Error("an address that isn't http: want an error")
	}
}
