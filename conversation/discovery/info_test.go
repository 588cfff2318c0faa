package discovery

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const (
	hexID    = "7C9E6679742540de944be07fc1f90ae7"
	dashedID = conversation.ID("7c9e6679-7425-40de-944b-e07fc1f90ae7")
)

func TestReadInfo(t *testing.T) {
	at := time.Date(2026, 8, 22, 12, 0, 1, 250_000_000, time.UTC)
	for name, tt := range map[string]struct {
		in   string
		want Info
	}{
		"flat": {
			`{"id":"` + hexID + `","execution_status":"running","title":"t","agent":{"kind":"Agent","llm":{"api_key":"canary"},
			"mcp_config":{"a":{"url":"http://a/mcp?k=v","transport":"http","timeout":3,"headers":{"url":"http://no"}},"b":{"command":"x"}}},
			"created_at":"2026-08-22T12:00:01.25Z","updated_at":"2026-08-22T14:00:01.250000+02:00"}`,
			Info{ID: dashedID, CreatedAt: at, UpdatedAt: at, URLs: []string{"http://a/mcp?k=v"}},
		},
		"wrapped": {
			`{"agent":{"mcp_config":{"mcpServers":{"a":{"url":"http://a/mcp"},"mcpServers":{"url":"http://m"}}}},"id":"x"}`,
			Info{ID: "x", URLs: []string{"http://a/mcp", "http://m"}},
		},
		"a server called mcpServers": {
			`{"agent":{"mcp_config":{"mcpServers":{"url":"http://m"},"a":{"url":"http://a"}}},"id":"x"}`,
			Info{ID: "x", URLs: []string{"http://m", "http://a"}},
		},
		"switched off": {
			`{"id":"x","agent":{"mcp_config":{"a":{"url":"http://a","enabled":false},"b":{"disabled":true,"url":"http://b"},"c":{"enabled":true,"url":"http://c","disabled":null}}}}`,
			Info{ID: "x", URLs: []string{"http://c"}},
		},
		"times without a zone": {
			`{"id":"x","created_at":"2026-08-22T12:00:01.250000","updated_at":"2026-08-22 12:00:01.25"}`,
			Info{ID: "x", CreatedAt: at, UpdatedAt: at},
		},
		"deleting":    {`{"id":"x","execution_status":"deleting"}`, Info{ID: "x", Deleting: true}},
		"ACP":         {`{"id":"x","agent":{"kind":"ACPAgent"}}`, Info{ID: "x", External: true}},
		"other types": {`{"id":"x","execution_status":3,"agent":{"kind":[],"mcp_config":{"a":3,"b":null,"c":{"url":{},"enabled":"no"}}},"created_at":{},"updated_at":"soon"}`, Info{ID: "x"}},
		"no agent":    {`{"id":"x","agent":null}`, Info{ID: "x"}},
		"no config":   {`{"id":"x","agent":{"mcp_config":null}}`, Info{ID: "x"}},
		"bad id":      {`{"id":"../x"}`, Info{}},
		"no object":   {`[1,{"id":"x"}]`, Info{}},
		"surrogate":   {`{"title":"\ud800","id":"x"}`, Info{ID: "x"}},
		"bad UTF-8":   {"{\"title\":\"\xff\",\"id\":\"x\"}", Info{ID: "x"}},
		"case":        {`{"ID":"y","id":"x","Agent":{"mcp_config":{"a":{"url":"http://a"}}}}`, Info{ID: "x"}},
		"last wins":   {`{"id":"y","id":"x","agent":{"mcp_config":{"a":{"url":"http://a"}}},"agent":{"mcp_config":{}}}`, Info{ID: "x"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadInfo(strings.NewReader(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			half, err := ReadInfo(iotest.OneByteReader(strings.NewReader(tt.in)))
			if diff := cmp.Diff(got, half); diff != "" || err != nil {
				t.Errorf("byte by byte: %v\n%s", err, diff)
			}
		})
	}
}

func TestReadInfoMalformed(t *testing.T) {
	for _, in := range []string{"", "{", `{"id":"canary"`, `{"id":"canary"}{}`, `{"id":canary}`, `{"agent":{"mcp_config":{"a":{"url":"canary}}}}`, strings.Repeat("[", 20_000)} {
		_, err := ReadInfo(strings.NewReader(in))
		if !errors.Is(err, ErrMalformed) || strings.Contains(err.Error(), "canary") {
			t.Errorf("%.40q: %v", in, err)
		}
	}
	broken := errors.New("reset")
	if _, err := ReadInfo(io.MultiReader(strings.NewReader(`{"id":"x",`), iotest.ErrReader(broken))); !errors.Is(err, broken) {
		t.Errorf("a broken connection is %v", err)
	}
}

func TestReadEvents(t *testing.T) {
	state := `{"kind":"ConversationStateUpdateEvent","key":"full_state","value":{"id":"` + hexID + `","agent":{"mcp_config":{"a":{"url":"http://a"}}}}}`
	for name, tt := range map[string]struct {
		in   string
		want *Info
	}{
		"none":         {`[]`, nil},
		"others":       {`[{"kind":"MessageEvent","value":{"id":"y"}},{"key":"execution_status","value":"idle"},3,null]`, nil},
		"state":        {`[{"key":"stats","value":{"id":"y"}},` + state + `]`, &Info{ID: dashedID, URLs: []string{"http://a"}}},
		"value first":  {`[{"value":{"id":"x"},"key":"full_state"}]`, &Info{ID: "x"}},
		"no object":    {`[{"key":"full_state","value":"x"}]`, nil},
		"the last one": {`[{"value":{"id":"x"},"key":"full_state"},` + state + `]`, &Info{ID: dashedID, URLs: []string{"http://a"}}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := ReadEvents(strings.NewReader(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for _, in := range []string{"", "{}", "[", `[{"key":"full_state"`, "[]]"} {
		if _, err := ReadEvents(strings.NewReader(in)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", in, err)
		}
	}
}

func TestRegistration(t *testing.T) {
	m := matcher(t, map[string]string{"tools": "/mcp"}, "http://sidecar:8080")
	i := Info{ID: "x", URLs: []string{"http://sidecar:8080/mcp"}, CreatedAt: time.Unix(1, 0), UpdatedAt: time.Unix(2, 0)}
	at := conversation.Instance{AgentServer: "sandboxes", URL: "https://a.example.com"}
	want := conversation.Registration{
		ID: "x", AgentServer: at.AgentServer, AgentURL: at.URL, Servers: []string{"tools"}, Source: conversation.SourceWebhook,
		CreatedAt: i.CreatedAt, LastActive: i.UpdatedAt,
	}
	got, ok := i.Registration(m, at, conversation.SourceWebhook)
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("%v (-want +got):\n%s", ok, diff)
	}
	for name, change := range map[string]func(*Info){
		"another URL": func(i *Info) { i.URLs = []string{"http://other/mcp"} },
		"deleting":    func(i *Info) { i.Deleting = true },
		"external":    func(i *Info) { i.External = true },
		"no id":       func(i *Info) { i.ID = "" },
	} {
		other := i
		change(&other)
		if _, ok := other.Registration(m, at, conversation.SourceWebhook); ok {
			t.Errorf("%s: registered", name)
		}
	}
}

func FuzzRead(f *testing.F) {
	f.Add(`{"id":"x","agent":{"mcp_config":{"mcpServers":{"a":{"url":"http://a","enabled":true}}}},"updated_at":"2026-08-22T12:00:01Z"}`)
	f.Add(`[{"key":"full_state","value":{"id":"x","agent":{"mcp_config":{"a":{"url":"http://a"}}}}}]`)
	f.Add(`{"items":[{"id":"x"},null,3],"next_page_id":"y"}`)
	m := matcher(f, map[string]string{"tools": "/mcp"}, "http://sidecar:8080")
	f.Fuzz(func(t *testing.T, in string) {
		check := func(i *Info) {
			if i == nil {
				return
			}
			if i.ID != "" {
				if id, err := conversation.ParseID(string(i.ID)); err != nil || id != i.ID {
					t.Errorf("the id %q isn't canonical", i.ID)
				}
			}
			i.Registration(m, conversation.Instance{}, conversation.SourceWebhook)
			for _, u := range i.URLs {
				if strings.ContainsAny(Shown(u), "?#") && !strings.ContainsAny(u, "%") {
					t.Errorf("%q is shown as %q", u, Shown(u))
				}
			}
		}
		i, err := ReadInfo(strings.NewReader(in))
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
		check(&i)
		last, err := ReadEvents(strings.NewReader(in))
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
		check(last)
		infos, _, err := decodePage(strings.NewReader(in))
		if err != nil && !errors.Is(err, ErrMalformed) {
			t.Error(err)
		}
		for _, i := range infos {
			check(&i)
		}
	})
}
