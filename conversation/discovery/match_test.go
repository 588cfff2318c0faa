package discovery

import (
	"net/url"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func matcher(tb testing.TB, paths map[string]string, public ...string) *Matcher {
	tb.Helper()
	var urls []*url.URL
	for _, s := range public {
		u, err := url.Parse(s)
		if err != nil {
			tb.Fatal(err)
		}
		urls = append(urls, u)
	}
	return NewMatcher(urls, paths)
}

func TestMatcher(t *testing.T) {
	paths := map[string]string{"tools": "/mcp", "files": "/files/mcp/", "root": "/"}
	m := matcher(t, paths, "https://Tools.example.com", "http://127.0.0.1:8080/", "http://gateway/side/car", "http://whole:81/prefix/mcp")
	for in, want := range map[string]string{
		"https://tools.example.com/mcp":                                           "tools",
		"https://TOOLS.example.com:443/mcp/":                                      "tools",
		"HTTPS://tools.example.com/mcp?key=secret#x":                              "tools",
		"https://me:pw@tools.example.com/mcp":                                     "tools",
		"https://tools.example.com/files/mcp":                                     "files",
		"https://tools.example.com/%66iles/mcp":                                   "files",
		"https://tools.example.com":                                               "root",
		"https://tools.example.com/c/7c9e6679-7425-40de-944b-e07fc1f90ae7/mcp":    "tools",
		"https://tools.example.com/c/7c9e6679742540de944be07fc1f90ae7/files/mcp/": "files",
		"https://tools.example.com/c/x":                                           "root",
		"http://127.0.0.1:8080/mcp":                                               "tools",
		"http://gateway/side/car/mcp":                                             "tools",
		"http://gateway/side/car/c/x/files/mcp":                                   "files",
		"http://gateway/side/car":                                                 "root",
		"http://whole:81/prefix/mcp":                                              "tools",
		"http://whole:81/prefix/files/mcp":                                        "files",
		"http://whole:81/prefix/c/x/mcp":                                          "tools",
		"http://tools.example.com/mcp":                                            "", // another scheme
		"https://tools.example.com:8443/mcp":                                      "", // another port
		"https://tools.example.com.evil.com/mcp":                                  "",
		"https://tools.example.com/other":                                         "",
		"https://tools.example.com/mcp/more":                                      "",
		"https://tools.example.com/c/a b/mcp":                                     "",
		"https://tools.example.com/c//mcp":                                        "",
		"http://gateway/mcp":                                                      "",
		"http://gateway/side/carmcp":                                              "",
		"http://localhost:8080/mcp":                                               "",
		"/mcp":                                                                    "",
		"":                                                                        "",
		"http://[":                                                                "",
		"${MCP_URL}":                                                              "",
	} {
		got, _ := m.server(in)
		if got != want {
			t.Errorf("%s names %q, want %q", in, got, want)
		}
	}
	got := m.Servers([]string{"http://127.0.0.1:8080/mcp", "https://other/mcp", "https://tools.example.com/files/mcp", "https://tools.example.com/mcp?x"})
	if diff := cmp.Diff([]string{"files", "tools"}, got); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
	if got := matcher(t, paths).Servers([]string{"http://127.0.0.1:8080/mcp"}); len(got) != 0 {
		t.Errorf("without a public URL, %v are named", got)
	}
}

func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"https://me:pw@h:1/mcp?key=s#f": "https://h:1/mcp", "http://h": "http://h", "http://[": "", "mcp": "",
	} {
		if got := Shown(in); got != want {
			t.Errorf("Shown(%q) = %q, want %q", in, got, want)
		}
	}
}
