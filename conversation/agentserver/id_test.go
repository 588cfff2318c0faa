package agentserver_test

import (
	"testing"

	"github.com/mcp-sidecar/mcp-sidecar/conversation/agentserver"
)

func FuzzParseID(f *testing.F) {
	f.Add("12345678-1234-4234-8234-123456789abc")
	f.Add("1234567812344234 234123456789ABC")
	f.Add("../../etc/passwd")
	f.Fuzz(func(t *testing.T, s string) {
		id, err := agentserver.ParseID(s)
		if err != nil {
			return
		}
		for _, form := range []string{string(id), id.Hex()} {
			if again, err := agentserver.ParseID(form); err != nil || again != id {
				t.Errorf("%q gives %q, whose form %q gives %q: %v", s, id, form, again, err)
			}
		}
		if len(id) != 36 {
			t.Errorf("%q gives %q", s, id)
		}
	})
}
