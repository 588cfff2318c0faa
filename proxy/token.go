package proxy

import (
	"net/http"
	"strings"
)

// admit tells whether a client may come in, and answers one that may not. Where
// the sidecar wants a token, Authorization is its own header: it is taken off, and
// neither the backend nor a session's principal knows of it. What a client reads
// to find out about authorization needs none (RFC 9728, section 3).
func (p *Proxy) admit(rt *routes, w http.ResponseWriter, r *http.Request) bool {
	if p.checkToken == nil {
		return true
	}

	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}

	token = strings.TrimSpace(token)

	wanted, ok := p.checkToken(token)
	if !wanted {
		return true
	}

	one := len(r.Header["Authorization"]) == 1 // which of two counts, readers disagree on
	delete(r.Header, "Authorization")

	if ok && one || (r.Method == http.MethodGet || r.Method == http.MethodHead) && rt.isMetadata(r.URL.Path) {
		return true
	}

	challenge := `Bearer realm="mcp-sidecar"`
	if token != "" {
		challenge += `, error="invalid_token"`
	}

	w.Header().Set("WWW-Authenticate", challenge)
	refuse(w, http.StatusUnauthorized, nil, codeInvalid, "this server wants a bearer token: send it as Authorization: Bearer TOKEN")

	return false
}

func (rt *routes) isMetadata(path string) bool {
	if !strings.HasPrefix(path, wellKnown) {
		return false
	}

	srv, _ := rt.metadata(path)

	return srv != nil
}
