package admin

import (
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/metrics"
)

// guard refuses what a web page could make a browser send: requests of a
// foreign origin, and over loopback those for a foreign host name, which is what
// DNS rebinding looks like. No answer ever carries a CORS header.
func guard(next http.Handler) http.Handler {
	sameSite := http.NewCrossOriginProtection()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case metrics.ForeignOrigin(r) || sameSite.Check(r) != nil:
			forbidden.with("requests of other web pages are refused").write(w)
		case metrics.ReboundHost(r):
			forbidden.with("over loopback, use localhost or an IP address as the host name").write(w)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// bearer returns the token of a request, "" without one.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// sameToken compares in a time that doesn't depend on the tokens. An empty token
// is no token.
func sameToken(got, want string) bool {
	a, b := sha256.Sum256([]byte(got)), sha256.Sum256([]byte(want))
	return subtle.ConstantTimeCompare(a[:], b[:]) == 1 && got != "" && want != ""
}

func refuseUnauthorized(w http.ResponseWriter, detail string) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="mcp-sidecar"`)
	unauthorized.with(detail).write(w)
}

// withProblems turns the plain answers of a mux, for paths and methods that it
// doesn't have, into problems.
func withProblems(mux *http.ServeMux) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, pattern := mux.Handler(r)
		if pattern != "" {
			mux.ServeHTTP(w, r)
			return
		}
		var plain statusRecorder
		h.ServeHTTP(&plain, r)
		if plain.status == http.StatusMethodNotAllowed {
			allow := plain.Header().Get("Allow")
			w.Header().Set("Allow", allow)
			methodNotAllowed.with("use " + allow).write(w)
			return
		}
		notFound.with("").write(w)
	})
}

// statusRecorder keeps the head of an answer and drops its body.
type statusRecorder struct {
	header http.Header
	status int
}

func (s *statusRecorder) Header() http.Header {
	if s.header == nil {
		s.header = http.Header{}
	}
	return s.header
}

func (s *statusRecorder) WriteHeader(status int) { s.status = status }

func (s *statusRecorder) Write(b []byte) (int, error) { return len(b), nil }
