package notify

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxErrorText bounds, in bytes, what is kept of an answer or a foreign error.
const maxErrorText = 1 << 10

const redacted = "<redacted>"

var (
	secretFields = regexp.MustCompile(
		`(?i)\b(authorization|cookie|x-session-api-key|mcp-session-id|[a-z0-9_-]*(?:api[_-]?key|token|password|secret))\b` +
			`(["']?\s*[:=]\s*["']?)(?:(?:bearer|basic)\s+)?[^\s"',;&]+`)
	secretSchemes = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[^\s"',;]+`)
	urlUserinfo   = regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://)[^\s/"'@?#]+@`)
	urlQuery      = regexp.MustCompile(`(?i)(\b[a-z][a-z0-9+.-]*://[^\s"'?]*)\?[^\s"']*`)
)

// redactText makes a foreign text fit for an error: without the given secrets
// and whatever looks like one (credentials by name, userinfo and query of a URL),
// on one line, and at most maxErrorText bytes long.
func redactText(text string, secrets ...string) string {
	for _, s := range secrets {
		if s != "" {
			text = strings.ReplaceAll(text, s, redacted)
		}
	}
	if len(text) > 4*maxErrorText { // what is cut away later needs no matching
		text = text[:4*maxErrorText]
	}
	text = strings.Map(func(r rune) rune {
		if r == utf8.RuneError || unicode.IsControl(r) {
			return ' '
		}

		return r
	}, text)
	text = urlUserinfo.ReplaceAllString(text, "${1}"+redacted+"@")
	text = urlQuery.ReplaceAllString(text, "${1}?"+redacted)
	text = secretFields.ReplaceAllString(text, "${1}${2}"+redacted)
	text = secretSchemes.ReplaceAllString(text, "${1} "+redacted)
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > maxErrorText {
		cut := maxErrorText - len("…")
		for !utf8.RuneStart(text[cut]) {
			cut--
		}
		text = text[:cut] + "…"
	}

	return text
}
