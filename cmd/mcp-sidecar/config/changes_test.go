package config

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChanges(t *testing.T) {
	base := Config{
		Listen: ":1", Servers: []Server{{Name: "one"}, {Name: "two"}, {Name: "three"}}, AgentServers: []AgentServer{{Name: "a"}, {Name: "b"}},
	}
	next := base
	next.Listen, next.PublicURL = ":2", []string{"http://x"}
	next.Servers = []Server{{Name: "one", Probe: Probe{Fails: 2}, Path: "/x"}, {Name: "three"}, {Name: "four"}}
	next.AgentServers = []AgentServer{{Name: "b"}, {Name: "a"}}
	next.Conversations = []Conversation{{ID: "c"}}
	want := []string{
		"agentServers", "conversations", "listen", "publicUrl", "servers[four]", "servers[one].path", "servers[one].probe.fails", "servers[two]",
	}
	if diff := cmp.Diff(want, Changes(&base, &next)); diff != "" {
		t.Error(diff)
	}
	if keys := Changes(&base, &base); len(keys) > 0 {
		t.Errorf("nothing changed, yet %q", keys)
	}
}
