package proxy

import (
	"errors"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/proxy/http1"
)

// Headers that the sidecar reads or answers itself, in the form that
// [http.Header] uses.
const (
	headerSession     = "Mcp-Session-Id"
	headerVersion     = "Mcp-Protocol-Version"
	headerAgentServer = "X-Sidecar-Agent-Server"
	headerAgentKey    = "X-Session-Api-Key"
)

// errConnectionHeader refuses a request whose Connection header would strip a
// header that the meaning of the request depends on: without it, the backend
// might take the request for an anonymous one. The answer is 400.
var errConnectionHeader = errors.New("the Connection header names a header that must reach the backend")

// hopByHop reports whether a header belongs to one connection (RFC 9110 section
// 7.6.1) or to framing, which the sidecar settles itself: it has read the whole
// body of a request before it forwards it, and may edit that of an answer.
func hopByHop(name string) bool {
	switch name {
	case "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "Proxy-Authorization",
		"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Expect", "Content-Length":
		return true
	}

	return false
}

// claimed reports whether a header claims something about where a request came
// from. That is believed of nobody.
func claimed(name string) bool {
	switch name {
	case "Forwarded", "X-Real-Ip", "X-Original-Host", "X-Original-Url", "X-Rewrite-Url":
		return true
	}

	return strings.HasPrefix(name, "X-Forwarded-")
}

// forwarding says how a client's request goes on to the backend.
type forwarding struct {
	upstream            *url.URL
	host, scheme        string   // as the client addressed the sidecar
	conversationHeaders []string // may name the conversation, in canonical form; not for the backend
	registers           bool     // the URL named the conversation
}

// forward returns the header with which a request to this address goes on to the
// backend.
func (v *address) forward(cfg *Config, r *http.Request) (http.Header, error) {
	f := forwarding{
		upstream: v.srv.conf().Upstream, host: r.Host, scheme: scheme(cfg, r),
		conversationHeaders: cfg.ConversationHeaders, registers: v.named,
	}

	return f.header(r.Header)
}

// scheme is what the client used. Where something in front of the sidecar ends
// TLS, only the public URL tells.
func scheme(cfg *Config, r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}

	for _, u := range cfg.PublicURLs {
		if strings.EqualFold(u.Host, r.Host) {
			return u.Scheme
		}
	}

	return "http"
}

// header returns the header with which a client's request goes on to the
// backend, and errConnectionHeader where there can be none. Besides what belongs
// to one connection it leaves out what is meant for the sidecar: the names of the
// conversation and the agent server, and the agent server's key that comes with
// them. A key without any of these isn't the sidecar's and passes.
//
// The request must be sent with the upstream's own Host: many servers refuse one
// that isn't theirs, to be safe from DNS rebinding. That check has been made by
// then (see [Guard]), and what the client used is in X-Forwarded-Host.
func (f *forwarding) header(in http.Header) (http.Header, error) {
	named, err := connectionNames(in)
	if err != nil {
		return nil, err
	}

	// The values are shared with in: nobody changes those.
	out := make(http.Header, len(in)+2)

	for name, values := range in {
		if !hopByHop(name) && !claimed(name) && !slices.Contains(named, name) {
			out[name] = values
		}
	}

	registers := f.registers || out[headerAgentServer] != nil

	delete(out, headerAgentServer)

	for _, name := range f.conversationHeaders {
		registers = registers || out[name] != nil
		delete(out, name)
	}

	if registers {
		delete(out, headerAgentKey)
	}

	if f.host != "" && !strings.EqualFold(f.host, f.upstream.Host) {
		values := [...]string{f.host, f.scheme}
		out["X-Forwarded-Host"], out["X-Forwarded-Proto"] = values[0:1:1], values[1:2:2]
	}

	if _, ok := out["User-Agent"]; !ok {
		out["User-Agent"] = nil // else net/http would put in its own
	}

	return out, nil
}

// connectionNames returns the headers that a Connection header declares to be of
// this connection only, in canonical form.
func connectionNames(h http.Header) ([]string, error) {
	var names []string

	for _, v := range h["Connection"] {
		for token := range strings.SplitSeq(v, ",") {
			name := textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(token))
			if endToEnd(name) {
				return nil, errConnectionHeader
			}

			names = append(names, name)
		}
	}

	return names, nil
}

// endToEnd reports whether a header carries meaning that no hop may take away.
func endToEnd(name string) bool {
	switch name {
	case "Authorization", "Origin", "Host", "Accept", "Cookie", "Last-Event-Id", headerAgentServer, headerAgentKey:
		return true
	}

	return strings.HasPrefix(name, "Mcp-") || strings.HasPrefix(name, "Content-")
}

// responseHeader adds the header of a backend's answer to the one of the answer
// to the client. It leaves out what belongs to the connection, the length (to be
// set again where the body is passed on as it is), the backend's session id,
// which is never the client's, and values with control bytes. What the sidecar
// allowed a browser stands above what the backend says of it.
func responseHeader(dst, src http.Header) {
	named, cors := src["Connection"] != nil, dst["Access-Control-Allow-Origin"] != nil

	for name, values := range src {
		if hopByHop(name) || name == headerSession || named && namedByConnection(src, name) {
			continue
		}

		if cors && strings.HasPrefix(name, "Access-Control-") {
			continue
		}

		if dst[name] == nil && len(values) == 1 && http1.IsValue(values[0]) {
			dst[name] = values[:1:1]
			continue
		}

		for _, v := range values {
			if http1.IsValue(v) {
				dst[name] = append(dst[name], v)
			}
		}
	}
}

func namedByConnection(h http.Header, name string) bool {
	for _, v := range h["Connection"] {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(token), name) && !endToEnd(name) {
				return true
			}
		}
	}

	return false
}

// backendSession returns the session id of a backend's answer, and false for one
// that can't be relied on: with control bytes or spaces, too long, or given twice.
func backendSession(h http.Header) (id string, ok bool) {
	switch values := h[headerSession]; len(values) {
	case 0:
		return "", true
	case 1:
		return values[0], validSessionID(values[0])
	}

	return "", false
}

// localLocation takes the backend's own address out of a Location header that is
// passed on, so that the client stays with the sidecar.
func localLocation(h http.Header, req *http.Request) {
	if h.Get("Location") == "" {
		return
	}

	if to, err := redirectTarget(req, h.Get("Location")); err == nil {
		h.Set("Location", to.RequestURI())
	}
}
