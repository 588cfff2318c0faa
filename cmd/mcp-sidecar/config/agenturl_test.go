package config

import (
	"errors"
	"strings"
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

// forbidden are URLs that no agent server can have, whatever is configured.
func forbidden() []string {
	return []string{
		"http://169.254.169.254", "http://169.254.169.254/latest/meta-data", "http://[::ffff:169.254.169.254]", "http://[::ffff:a9fe:a9fe]",
		"http://[0:0:0:0:0:ffff:a9fe:a9fe]:80/", "http://[::a9fe:a9fe]", "http://[64:ff9b::a9fe:a9fe]", "http://[2002:a9fe:a9fe::1]",
		"http://2852039166", "http://2852039166.", "http://0xa9fea9fe", "http://0xA9.0xFE.0xA9.0xFE", "http://0251.0376.0251.0376", "http://025177524776",
		"http://169.254.43518", "http://169.16689662", "http://169.254.169.254.", "http://0x", "http://127.1", "http://0177.0.0.1", "http://127.0.0.0x1",
		"http://[::]", "http://[::]:8000", "http://0.0.0.0", "http://0.0.0.0:8000", "http://0", "http://[fe80::1]", "http://[fe80::1%25eth0]",
		"http://[::1%25lo]", "http://224.0.0.1", "http://255.255.255.255", "http://100.100.100.200", "http://168.63.129.16", "http://[fd00:ec2::254]",
		"http://user@agents.internal", "http://user:secret@agents.internal", "http://169.254.169.254@agents.internal", "http://@agents.internal",
		"http://agents.internal@169.254.169.254",
		"file:///etc/passwd", "gopher://agents.internal:70/_x", "ftp://agents.internal", "//agents.internal", "agents.internal:8000", "javascript://x",
		"http://", "http:///x", "http://agents.internal:0", "http://agents.internal:65536", "http://agents.internal:80a", "http://agents.internal:-1",
		"http://agents.internal/?x", "http://agents.internal/?", "http://agents.internal/#x", "http://agents.internal/#",
		"http://agents.internal/../admin", "http://agents.internal/a/./b", "http://agents.internal//a", "http://agents.internal/%2e%2e/x",
		"http://agents.internal/a%2fb", "http://agents.internal/a\r\nX: y", "http://agents.internal\r\n/", "http://agents internal", "http://agents.internal/a\\b",
		"http://agents%2einternal", "http://ägents.internal", "http://agents..internal", "http://-agents.internal", "http://agents.internal/" + strings.Repeat("a", 2000),
	}
}

func TestParseAgentURLRefuses(t *testing.T) {
	for _, s := range forbidden() {
		u, err := ParseAgentURL(s)
		if err == nil {
			t.Errorf("%q is taken for %s", s, u)
			continue
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error repeats a password: %v", s, err)
		}
		c := Default()
		c.AgentServers = []AgentServer{
			{Name: "a", URL: "http://*.internal:*"},
			{Name: "b", URL: "http://localhost:*"},
			{Name: "c", URL: "http://169.254.169.254:*"},
			{Name: "d", URL: "http://*.169.254"},
			{Name: "e", URL: "http://0xa9fea9fe:*"},
		}
		if at, err := c.ResolveAgent(s); err == nil {
			t.Errorf("%q is allowed as %+v", s, at)
		}
	}
}

func TestParseAgentURL(t *testing.T) {
	for in, want := range map[string]string{
		"http://agents.internal":                    "http://agents.internal",
		"HTTP://Agents.Internal.:80/":               "http://agents.internal",
		"https://agents.internal:443/prefix/":       "https://agents.internal/prefix",
		"http://agents.internal:08000":              "http://agents.internal:8000",
		"http://127.0.0.1:8000":                     "http://127.0.0.1:8000",
		"http://[::1]:8000/":                        "http://[::1]:8000",
		"http://[0:0::1]":                           "http://[::1]",
		"http://[::ffff:10.0.0.1]:8000":             "http://10.0.0.1:8000",
		"http://10.1.2.3":                           "http://10.1.2.3",
		"https://8000-abc123.e2b.example.com":       "https://8000-abc123.e2b.example.com",
		"http://agents_1:8000":                      "http://agents_1:8000",
		"http://host.docker.internal:49153":         "http://host.docker.internal:49153",
		"https://work-1-abc.prod-runtime.example.a": "https://work-1-abc.prod-runtime.example.a",
	} {
		u, err := ParseAgentURL(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if u.String() != want {
			t.Errorf("%q is %s, want %s", in, u, want)
		}
		if again, err := ParseAgentURL(u.String()); err != nil || *again != *u {
			t.Errorf("%s is read as %v, %v", u, again, err)
		}
	}
}

func TestResolveAgent(t *testing.T) {
	c := Default()
	c.AgentServers = []AgentServer{
		{Name: "one", URL: "http://Agents.internal:8000/x/"},
		{Name: "sandboxes", URL: "https://*.sandbox.example.com"},
		{Name: "docker", URL: "http://localhost:*"},
		{Name: "prefix", URL: "https://*.ingress.example.com:*/agent"},
	}
	for s, want := range map[string]conversation.Instance{
		"one":                                      {AgentServer: "one"},
		"http://agents.internal:8000/x":            {AgentServer: "one"},
		"https://a.sandbox.example.com":            {AgentServer: "sandboxes", URL: "https://a.sandbox.example.com"},
		"https://A.b.sandbox.example.com:443/":     {AgentServer: "sandboxes", URL: "https://a.b.sandbox.example.com"},
		"http://localhost:49153":                   {AgentServer: "docker", URL: "http://localhost:49153"},
		"http://localhost":                         {AgentServer: "docker", URL: "http://localhost"},
		"https://a.ingress.example.com/agent/":     {AgentServer: "prefix", URL: "https://a.ingress.example.com/agent"},
		"https://a.ingress.example.com:8443/agent": {AgentServer: "prefix", URL: "https://a.ingress.example.com:8443/agent"},
		"two":                                       {},
		"":                                          {},
		"http://agents.internal:8000":               {},
		"http://agents.internal:8000/x/y":           {},
		"https://agents.internal:8000/x":            {},
		"https://sandbox.example.com":               {},
		"https://.sandbox.example.com":              {},
		"https://asandbox.example.com":              {},
		"http://a.sandbox.example.com":              {},
		"https://a.sandbox.example.com:8443":        {},
		"https://a.sandbox.example.com/x":           {},
		"https://a.sandbox.example.com.evil.com":    {},
		"https://evil.com/a.sandbox.example.com":    {},
		"https://evil.com?.sandbox.example.com":     {},
		"https://evil.com#.sandbox.example.com":     {},
		"https://evil.com\\.sandbox.example.com":    {},
		"https://evil.com:1.sandbox.example.com":    {},
		"http://localhost.evil.com:8000":            {},
		"http://127.0.0.1:8000":                     {},
		"https://a.ingress.example.com/agentx":      {},
		"https://a.ingress.example.com/agent/../..": {},
	} {
		at, err := c.ResolveAgent(s)
		if (err != nil) != (want == conversation.Instance{}) || at != want {
			t.Errorf("%q is %+v (%v), want %+v", s, at, err, want)
		}
	}
	_, err := c.ResolveAgent("sandboxes")
	if unlocated, ok := errors.AsType[*conversation.UnlocatedError](err); !ok || unlocated.AgentServer != "sandboxes" {
		t.Errorf("the name of a pattern: %v", err)
	}
}

func TestAgentServerURLs(t *testing.T) {
	for s, want := range map[string]string{
		"http://10.0.0.1:8000":            "",
		"https://*.example.com":           "",
		"http://localhost:*":              "",
		"http://127.0.0.1:9091":           "own address",
		"http://localhost:9090":           "own address",
		"http://[::1]:8080":               "own address",
		"http://127.0.0.1:9092":           "own address",
		"http://127.0.0.1:9093":           "",
		"http://0xa9fea9fe":               "four decimal numbers",
		"http://u@h":                      "user or a password",
		"http://*.254.169.254":            "four decimal numbers",
		"http://*.10.0.0.1":               "part of an IP address",
		"http://169.254.169.254:*":        "refused",
		"http://0251.0376.0251.0376:*":    "four decimal numbers",
		"http://*:8000":                   "want a pattern",
		"http://a.*.example.com":          "want a pattern",
		"http://*.example.com:*/../x":     `".."`,
		"http://*.example.com:99999":      "65535",
		"file://*.example.com":            "want a pattern",
		"http://user@*.example.com":       "want a pattern",
		"http://*.example.com/x?y":        "want a pattern",
		"http://*.xn--bcher-kva.example:": "want a pattern",
	} {
		c := Default()
		c.RegisterListen = ":9092"
		r := newReport("f.yaml")
		c.validateAgentURL(r, "url", s)
		text := ""
		if err := r.err(); err != nil {
			text = err.Error()
		}
		if (text == "") != (want == "") || !strings.Contains(text, want) {
			t.Errorf("%q: %q, want %q", s, text, want)
		}
	}
}

func FuzzParseAgentURL(f *testing.F) {
	for _, s := range forbidden() {
		f.Add(s)
	}
	f.Add("https://A.b.example.com:443/x/")
	c := Default()
	c.AgentServers = []AgentServer{{Name: "sandboxes", URL: "https://*.example.com"}}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := ParseAgentURL(s)
		if err != nil {
			return
		}
		if again, err := ParseAgentURL(u.String()); err != nil || *again != *u {
			t.Errorf("%q is %s, and that is %v, %v", s, u, again, err)
		}
		if at, err := c.ResolveAgent(s); err == nil && (!strings.HasSuffix(u.Hostname(), ".example.com") || at.URL != u.String()) {
			t.Errorf("%q is allowed: %+v", s, at)
		}
	})
}
