package admin

import (
	"crypto/sha256"
	_ "embed" // for the files of the page
	"encoding/hex"
	"net/http"
	"strings"
	"time"
)

// The status page is served as it lies there, without a build.
var (
	//go:embed page/index.html
	pageHTML string
	//go:embed page/page.css
	pageCSS string
	//go:embed page/page.js
	pageJS string
	//go:embed page/icon.svg
	pageIcon string
)

// pagePolicy lets the page do what it needs and nothing else: no code or style
// but its own, no other host, no HTML made of text, no frame around it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// servePage adds the status page to a mux. It says nothing about the sidecar: what
// it shows comes from the API.
func servePage(mux *http.ServeMux) {
	for pattern, file := range map[string]struct{ contentType, content string }{
		"GET /{$}":      {"text/html; charset=utf-8", pageHTML},
		"GET /page.css": {"text/css; charset=utf-8", pageCSS},
		"GET /page.js":  {"text/javascript; charset=utf-8", pageJS},
		"GET /icon.svg": {"image/svg+xml", pageIcon},
	} {
		mux.Handle(pattern, pageFile(file.contentType, file.content))
	}
}

func pageFile(contentType, content string) http.Handler {
	sum := sha256.Sum256([]byte(content))
	tag := `"` + hex.EncodeToString(sum[:16]) + `"`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Type", contentType)
		h.Set("Content-Security-Policy", pagePolicy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-cache")
		h.Set("ETag", tag)
		http.ServeContent(w, r, "", time.Time{}, strings.NewReader(content))
	})
}
