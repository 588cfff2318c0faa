package proxy

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/conversation"
)

const (
	// conversationPrefix stands before a conversation's id, which stands before
	// the server's path.
	conversationPrefix = "/c"
	// wellKnown is where authorization metadata is (RFC 8615).
	wellKnown = "/.well-known/"
)

// address is what the address and the headers of a request say: which server it is
// for, and which conversation it belongs to.
type address struct {
	srv   *server
	conv  conversation.ID
	named bool // the URL named the conversation
}

func trimSlash(path string) string {
	if t := strings.TrimSuffix(path, "/"); t != "" {
		return t
	}

	return "/"
}

// serve finds out what a request wants.
func (rt *routes) serve(p *Proxy, w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, wellKnown) {
		if srv, path := rt.metadata(r.URL.Path); srv != nil {
			srv.passThrough(w, r, path)
			return
		}
	}

	v, ok := rt.find(r.URL.Path)
	if !ok {
		if srv := rt.authorization(r.URL.Path); srv != nil {
			srv.passThrough(w, r, r.URL.Path)
			return
		}

		rt.notFound(w)

		return
	}

	rt.conversation(p, &v, r)

	if v.srv.conf().Transport == TransportSSE {
		p.serveSSE(w, r, &rt.cfg, v)
		return
	}

	switch r.Method {
	case http.MethodPost:
		p.servePost(w, r, &rt.cfg, v)
	case http.MethodGet:
		p.serveGet(w, r, &rt.cfg, v)
	case http.MethodDelete:
		p.serveDelete(w, r, &rt.cfg, v)
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		refuse(w, http.StatusMethodNotAllowed, nil, codeInvalid, "this method is not part of MCP")
	}
}

// find splits a path into a conversation and a server.
func (rt *routes) find(path string) (address, bool) {
	if srv := rt.byPath[trimSlash(path)]; srv != nil {
		return address{srv: srv}, true
	}

	rest, ok := strings.CutPrefix(path, conversationPrefix+"/")
	if !ok {
		return address{}, false
	}

	name, rest, _ := strings.Cut(rest, "/")

	srv := rt.byPath[trimSlash("/"+rest)]
	if srv == nil {
		return address{}, false
	}

	id, err := conversation.ParseID(name)

	return address{srv: srv, conv: id, named: true}, err == nil
}

// conversation completes an address from the headers and reports it.
func (rt *routes) conversation(p *Proxy, v *address, r *http.Request) {
	source := conversation.SourceURL

	if v.conv == "" {
		source = conversation.SourceHeader

		for _, name := range rt.cfg.ConversationHeaders {
			values := r.Header[name]
			if len(values) == 0 {
				continue
			}

			if id, err := conversation.ParseID(values[0]); err == nil {
				v.conv = id
				break
			}
		}
	}

	if v.conv == "" && r.Header[headerAgentServer] == nil {
		return
	}

	s := conversation.Sighting{ID: v.conv, AgentServer: r.Header.Get(headerAgentServer), Server: v.srv.name, Source: source}
	if s.AgentServer != "" { // a key that comes alone may be the backend's
		s.AgentKey = conversation.Key(r.Header.Get(headerAgentKey))
	}

	if s.ID != "" || s.AgentServer != "" {
		p.conversations.Seen(s)
	}
}

// metadata finds the server that a path of authorization metadata is about, and
// the path on its backend. The path of the resource comes after the name of the
// document (RFC 9728, section 3.1); without one the document is about the host.
func (rt *routes) metadata(path string) (*server, string) {
	name, resource, ok := strings.Cut(strings.TrimPrefix(path, wellKnown), "/")

	switch name {
	case "oauth-protected-resource", "oauth-authorization-server", "openid-configuration":
	default:
		return nil, ""
	}

	if !ok || resource == "" {
		return rt.any(), wellKnown + name
	}

	if v, ok := rt.find("/" + resource); ok {
		return v.srv, wellKnown + name + trimSlash(v.srv.conf().Upstream.Path)
	}

	return rt.any(), path
}

// authorization finds the server for the paths that clients of 2025-03-26 use
// where there is no metadata (its "Authorization", section 2.3.3).
func (rt *routes) authorization(path string) *server {
	switch path {
	case "/authorize", "/token", "/register":
		return rt.any()
	default:
		return nil
	}
}

// any is the server that requests about the host as a whole go to: the first.
func (rt *routes) any() *server { return rt.servers[rt.cfg.Servers[0].Name] }

func (rt *routes) notFound(w http.ResponseWriter) {
	paths := slices.Sorted(maps.Keys(rt.byPath))
	refuse(w, http.StatusNotFound, nil, codeInvalid, fmt.Sprintf(
		"nothing is served here: MCP servers are at %s, or below %s/{conversation}",
		strings.Join(paths, ", "), conversationPrefix))
}
