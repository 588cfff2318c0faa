package admin

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"time"
)

// pageFiles is the status page. It is served as it lies there, without a build.
//
//go:embed page
var pageFiles embed.FS

// pagePolicy lets the page do what it needs and nothing else: no code or style
// but its own, no other host, no HTML made of text, no frame around it.
const pagePolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// servePage adds the status page to a mux. It says nothing about the sidecar: what
// it shows comes from the API.
func servePage(mux *http.ServeMux) {
	for _, name := range []string{"index.html", "icon.svg", "page.css", "page.js", "api.js", "changes.js", "dom.js", "timeline.js"} {
		pattern := "GET /" + name
		if name == "index.html" {
			pattern = "GET /{$}"
		}
		mux.Handle(pattern, pageFile(name))
	}
}

func pageFile(name string) http.Handler {
	contentType := map[string]string{
		".html": "text/html; charset=utf-8", ".svg": "image/svg+xml", ".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
	}[path.Ext(name)]
	content, err := pageFiles.ReadFile("page/" + name)
	if err != nil {
		panic(err) // it is in the program
	}
	sum := sha256.Sum256(content)
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
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
	})
}
