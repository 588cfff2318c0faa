package main

import (
	"strings"
	"testing"
)

func TestBatch(t *testing.T) {
	s := start(t)
	_, session := post(t, s.url+"/mcp", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-03-26","clientInfo":{"name":"n","version":"1"},"capabilities":{}}}`)
	const (
		ping   = `{"jsonrpc":"2.0","id":7,"method":"ping"}`
		call   = `{"jsonrpc":"2.0","id":8,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}`
		notice = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	)
	for _, test := range []struct {
		batch  string
		status int
		want   []string
	}{
		{"[" + ping + "," + call + "]", 200, []string{"[{", `"id":7`, `"id":8`, `"text":"3"`, "}]"}},
		{"[" + notice + "," + call + "," + ping + "]", 200, []string{"data: {", `"id":7`, `"id":8`, `"text":"3"`}},
		{"[" + notice + "," + notice + "]", 202, nil},
	} {
		status, body := post(t, s.url+"/mcp", session, test.batch)
		if status != test.status {
			t.Errorf("%s: %d", test.batch, status)
		}
		for _, want := range test.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: %s has no %s", test.batch, body, want)
			}
		}
	}
	if status, body := post(t, s.url+"/mcp", "mcp-session-12345678-1234-4234-8234-123456789abc", "["+ping+"]"); status != 404 || !strings.Contains(body, "session") {
		t.Errorf("unknown session: %d %s", status, body)
	}
}
