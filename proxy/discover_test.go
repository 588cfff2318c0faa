package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	mcpserver "github.com/mark3labs/mcp-go/server"
)

// discovery is a backend that answers server/discover with a result.
func discovery(result string, sse bool) process {
	return process{handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m stubMessage

		body, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(body, &m)

		answer := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, strings.ReplaceAll(result, "CALLER", r.Header.Get("Authorization")))

		if sse {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, "data: "+answer+"\n\n")

			return
		}

		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, answer)
	})}
}

func TestDiscoverDeclaresListChanged(t *testing.T) {
	for name, sse := range map[string]bool{"json": false, "sse": true} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.backend.start(discovery(`{"resultType":"complete","capabilities":{"tools":{"x":1e2}}, "ttlMs":5}`, sse))

			g := r.modern("1", methodDiscover, "")

			const want = `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","capabilities":{"tools":{"listChanged":true,"x":1e2}}, "ttlMs":5}}`
			if g.status != http.StatusOK || strings.TrimSpace(strings.TrimPrefix(g.body, "data: ")) != want {
				t.Errorf("got %d %s", g.status, g.body)
			}

			if n := g.header.Get("Content-Length"); !sse && n != strconv.Itoa(len(want)) {
				t.Errorf("length %s", n)
			}
		})
	}
}

func TestDiscoverWhileAway(t *testing.T) {
	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.Servers[0].Hold = 100 * time.Millisecond })
	s := mcpserver.NewMCPServer("backend", "1", mcpserver.WithToolCapabilities(false))
	r.backend.start(process{handler: mcpserver.NewStreamableHTTPServer(s, mcpserver.WithStateful(true))})

	_, before, _, _ := r.modern("1", methodDiscover, "").rpc(t)
	if !strings.Contains(string(before), `"listChanged":true`) {
		t.Errorf("got %s", before)
	}

	r.backend.kill()

	for _, id := range []string{`"a"`, `2`} {
		g := r.modern(id, methodDiscover, "")
		if got, result, _, _ := g.rpc(t); got != id || string(result) != string(before) || g.status != http.StatusOK {
			t.Errorf("got %d %s, want %s", g.status, g.body, before)
		}
	}

	// Nobody else's result, and no other request's.
	for _, g := range []got{r.modern("3", methodDiscover, "", "Authorization", "Bearer x"), r.modern("4", methodList, "")} {
		if _, _, code, _ := g.rpc(t); code != CodeBackendAway {
			t.Errorf("got %d %s", g.status, g.body)
		}
	}
}

func TestDiscoverScope(t *testing.T) {
	const private, public = `{"caller":"CALLER"}`, `{"caller":"CALLER","cacheScope":"public"}`

	r := newRig(t, func(c *Config, _ *Deps, _ *rig) { c.Servers[0].Hold = 100 * time.Millisecond })
	ask := func(caller string) string {
		_, result, code, _ := r.modern("1", methodDiscover, "", "Authorization", caller).rpc(t)
		if code != 0 {
			return strconv.Itoa(code)
		}

		return string(result)
	}

	r.backend.start(discovery(private, false))
	ask("Bearer a")
	ask("Bearer b")
	r.backend.kill()

	for _, caller := range []string{"Bearer a", "Bearer b"} {
		if g := ask(caller); g != `{"caller":"`+caller+`"}` {
			t.Errorf("%s got %s", caller, g)
		}
	}

	if g := ask("Bearer c"); g != strconv.Itoa(CodeBackendAway) {
		t.Errorf("a stranger got %s", g)
	}

	r.backend.start(discovery(public, false))
	r.settled()
	ask("Bearer a")
	r.backend.kill()

	if g := ask("Bearer c"); g != `{"caller":"Bearer a","cacheScope":"public"}` {
		t.Errorf("got %s", g)
	}

	// A server of an earlier revision.
	r.backend.start(process{handler: &stub{}})
	r.settled()

	if g := r.modern("1", methodDiscover, ""); g.status != http.StatusNotFound {
		t.Errorf("got %d %s", g.status, g.body)
	}

	r.backend.kill()

	if g := ask("Bearer c"); g != strconv.Itoa(CodeBackendAway) {
		t.Errorf("got %s", g)
	}
}
