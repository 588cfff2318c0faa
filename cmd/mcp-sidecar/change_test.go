package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/health"
)

func toolset(t *testing.T, tools ...string) *health.Toolset {
	t.Helper()
	raw := make([]json.RawMessage, len(tools))
	for i, tool := range tools {
		raw[i] = json.RawMessage(tool)
	}
	ts, err := health.HashTools(raw, health.HashOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return &ts
}

func TestNewChange(t *testing.T) {
	before := toolset(t, `{"name":"add","inputSchema":{"required":["a"]}}`, `{"name":"old"}`)
	after := toolset(t, `{"name":"add","inputSchema":{"required":["a","b"]}}`, `{"name":"new","n":12345678901234567890}`)
	e := health.Event{At: time.Unix(1, 0), Tools: after, Changes: health.Diff(*before, *after), ChangeCause: health.ChangeSilent}
	got := newChange(e, before, nil)
	want := &admin.Change{
		At: time.Unix(1, 0), Cause: "silent", Silent: true, Breaking: true, Added: []string{"new"}, Removed: []string{"old"}, Changed: []string{"add"},
		Tools: []admin.ToolChange{
			{
				Tool: "add", Kind: "changed", Breaking: true, Details: e.Changes[0].Details,
				Before: "{\n  \"name\": \"add\",\n  \"inputSchema\": {\n    \"required\": [\n      \"a\"\n    ]\n  }\n}",
				After:  "{\n  \"name\": \"add\",\n  \"inputSchema\": {\n    \"required\": [\n      \"a\",\n      \"b\"\n    ]\n  }\n}",
			},
			{Tool: "new", Kind: "added", After: "{\n  \"name\": \"new\",\n  \"n\": 12345678901234567890\n}"},
			{Tool: "old", Kind: "removed", Breaking: true, Before: "{\n  \"name\": \"old\"\n}"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestNewChangeByDigests compares with what an earlier process stored.
func TestNewChangeByDigests(t *testing.T) {
	after := toolset(t, `{"name":"add"}`, `{"name":"new"}`, `{"name":"same"}`)
	digests := map[string]string{"add": "00", "old": "00", "same": after.Tools[2].Digest}
	e := health.Event{Tools: after, ChangeCause: health.ChangeByRestart}
	got := newChange(e, nil, digests)
	if !got.Breaking || strings.Join(got.Added, " ") != "new" || strings.Join(got.Changed, " ") != "add" || strings.Join(got.Removed, " ") != "old" {
		t.Errorf("%+v", got)
	}
	if got := newChange(health.Event{Tools: after}, nil, digests); len(got.Tools) != 0 {
		t.Errorf("no change was announced, yet: %+v", got)
	}
}

func TestNewChangeIsBounded(t *testing.T) {
	deep := strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	tools := []string{`{"name":"deep","x":` + deep + `}`, `{"name":"deep2","d":"` + strings.Repeat("]", 10_000) + `","x":` + deep + `}`, `{"name":"long","x":"` + strings.Repeat("x", maxDefinition) + `"}`}
	for i := range 200 {
		tools = append(tools, fmt.Sprintf(`{"name":"t%d%s","x":"%s"}`, i, strings.Repeat("é", maxEventName), strings.Repeat("x", maxDefinition/2)))
	}
	var raw []health.Tool
	var changes []health.Change
	for _, tool := range tools {
		var named struct{ Name string }
		if err := json.Unmarshal([]byte(tool), &named); err != nil {
			t.Fatal(err)
		}
		raw = append(raw, health.Tool{Name: named.Name, Raw: json.RawMessage(tool)})
		changes = append(changes, health.Change{Tool: named.Name, Kind: health.ChangeAdded})
	}
	c := newChange(health.Event{Tools: &health.Toolset{Tools: raw}, Changes: changes, ChangeCause: health.ChangeByRestart}, nil, nil)
	size := 0
	for _, tool := range c.Tools {
		size += len(tool.After)
		if strings.HasPrefix(tool.Tool, "deep") && tool.After != "" || tool.Tool == "long" && tool.After != "" {
			t.Errorf("the definition of %s is kept", tool.Tool)
		}
	}
	if size > maxDefinitions || size < maxDefinitions/2 {
		t.Errorf("%d bytes of definitions are kept", size)
	}
	e := generationEvent(c)
	if len(e.Added) != maxEventNames || e.Omitted != len(tools)-maxEventNames {
		t.Errorf("an event has %d names and leaves %d out", len(e.Added), e.Omitted)
	}
	for _, name := range e.Added {
		if len(name) > maxEventName || strings.ContainsRune(name, '\uFFFD') {
			t.Errorf("name of %d bytes: %q", len(name), name)
		}
	}
}
