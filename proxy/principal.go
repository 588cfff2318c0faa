package proxy

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
)

// principal says who a request comes from, as far as its credentials show it: a
// hash of the issuer and subject of a JWT, else a fingerprint of the credential
// itself, "" without one. Nothing is verified here: that is the backend's
// business. It is no secret, but kept sealed all the same.
type principal string

const (
	principalSubject = "s:" // a JWT's issuer and subject
	principalPrint   = "p:" // any other credential
)

// credentialHeaders carry what a backend may know a client by.
//
//nolint:gochecknoglobals // a constant list
var credentialHeaders = [...]string{"Authorization", "X-Api-Key", "Api-Key", "X-Auth-Token"}

// principalOf reads the principal of a request's header.
func principalOf(h http.Header) principal {
	if token, ok := bearer(h); ok {
		if iss, sub, ok := subject(token); ok {
			return principal(principalSubject + fingerprint(iss, sub))
		}
	}

	var parts []string

	for _, name := range credentialHeaders {
		for _, v := range h[name] {
			parts = append(parts, name, v)
		}
	}

	if parts == nil {
		return ""
	}

	return principal(principalPrint + fingerprint(parts...))
}

// conflicts reports whether q is certainly somebody else.
func (p principal) conflicts(q principal) bool {
	return p != q && strings.HasPrefix(string(p), principalSubject) && strings.HasPrefix(string(q), principalSubject)
}

// moves reports whether a session of p becomes q's when the backend accepts q on
// it: tokens rotate.
func (p principal) moves(q principal) bool { return q != "" && p != q && !p.conflicts(q) }

// sameCredentials reports whether two headers carry the very same credentials.
func sameCredentials(a, b http.Header) bool {
	for _, name := range credentialHeaders {
		va, vb := a[name], b[name]
		if len(va) != len(vb) {
			return false
		}

		for i := range va {
			if va[i] != vb[i] {
				return false
			}
		}
	}

	return true
}

func bearer(h http.Header) (string, bool) {
	scheme, token, ok := strings.Cut(h.Get("Authorization"), " ")

	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// subject reads issuer and subject of a JWT (RFC 7519), without verifying it.
func subject(token string) (iss, sub string, ok bool) {
	_, rest, ok := strings.Cut(token, ".")
	if !ok {
		return "", "", false
	}

	payload, _, ok := strings.Cut(rest, ".")
	if !ok {
		return "", "", false
	}

	raw, err := base64.RawURLEncoding.DecodeString(payload)
	if err != nil {
		return "", "", false
	}

	var claims struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
	}
	if err := json.Unmarshal(raw, &claims); err != nil || claims.Subject == "" {
		return "", "", false
	}

	return claims.Issuer, claims.Subject, true
}

func fingerprint(parts ...string) string {
	h := sha256.New()

	for _, p := range parts {
		h.Write([]byte(p))
		h.Write([]byte{0})
	}

	return hex.EncodeToString(h.Sum(nil)[:16])
}

// ownHeader returns the header for requests that the sidecar makes by itself on
// behalf of a client: what identifies the client stays, what describes the
// request that it made goes.
func ownHeader(forward http.Header) http.Header {
	h := make(http.Header, len(forward))

	for name, v := range forward {
		switch {
		case name == headerSession, name == headerVersion, name == "Accept", name == "Accept-Encoding",
			name == headerLastEvent, name == "Cache-Control", name == "Range", strings.HasPrefix(name, "If-"),
			strings.HasPrefix(name, "Content-"), strings.HasPrefix(name, "Mcp-"):
		default:
			h[name] = v
		}
	}

	return h
}
