package notify

import (
	"bytes"
	"net/http"
	"strings"
	"testing"
	"time"
)

const testID = "0b5e3c1e-7d0e-4a55-9c57-0d3c4e0f8a11"

// expectedReason says what the action's answer with a status and an agent
// server's JSON error means.
func expectedReason(status int) Reason {
	switch status {
	case 401, 403:
		return ReasonAuth
	case 404, 405, 410:
		return ReasonNotFound
	case 409:
		return ReasonConflict
	case 408, 425, 429:
		return ReasonThrottled
	}
	switch {
	case status < 200:
		return ReasonOther
	case status < 300:
		return ""
	case status < 400:
		return ReasonRedirect
	case status < 500:
		return ReasonRejected
	default:
		return ReasonServerError
	}
}

func TestClassifyEveryStatus(t *testing.T) {
	for status := 100; status < 600; status++ {
		a := &answer{status: status, header: http.Header{"Content-Type": {"application/json"}}, body: []byte(`{"detail":"why"}`)}
		if got, want := a.reason(), expectedReason(status); got != want {
			t.Errorf("status %d with JSON: got %q, want %q", status, got, want)
		}
		a = &answer{status: status, header: http.Header{"Content-Type": {"text/html"}}, body: []byte(`<html>paused</html>`)}
		want := ReasonIngress
		if status >= 300 && status < 400 {
			want = ReasonRedirect
		}
		if got := a.reason(); got != want {
			t.Errorf("status %d with a page: got %q, want %q", status, got, want)
		}
	}
}

// TestEveryStatusOverHTTP drives the real client: how often it asks, and what
// it makes of the answer.
func TestEveryStatusOverHTTP(t *testing.T) {
	f := newFakeAgentServer(t)
	c := newTestClient(t, f.URL)
	for code := 200; code < 600; code++ {
		body := `{"detail":"why"}`
		if code == http.StatusNoContent || code == http.StatusNotModified {
			body = ""
		}
		f.on("POST "+testRefresh, status(code, body))
		f.taken()
		err := c.refresh(t.Context(), call{id: testID})
		c.support.set(modeUnknown)

		want, requests := expectedReason(code), 1
		switch {
		case want.retriesSoon():
			requests += shortRetries
		case code == http.StatusMethodNotAllowed: // no such action
			want, requests = ReasonUnsupported, 3
		case want == ReasonNotFound:
			want, requests = ReasonUnsupported, 4
		}
		if got, n := ReasonOf(err), len(f.taken()); got != want || n != requests {
			t.Errorf("status %d: reason %q after %d requests, want %q after %d (%v)", code, got, n, want, requests, err)
		}
	}
}

func TestClassifyBodies(t *testing.T) {
	tests := map[string]struct {
		status      int
		contentType string
		body        string
		cut         bool
		want        Reason
	}{
		"empty 200":                  {status: 200},
		"plain 200":                  {status: 200, contentType: "text/plain", body: "ok"},
		"login page":                 {status: 200, contentType: "text/html; charset=utf-8", body: "hello", want: ReasonIngress},
		"page without a type":        {status: 200, body: " \n<!doctype html>", want: ReasonIngress},
		"JSON that begins like HTML": {status: 500, contentType: "application/json", body: "<oops", want: ReasonServerError},
		"plain 400":                  {status: 400, contentType: "text/plain", body: "bad", want: ReasonRejected},
		"plain 404 of an ingress":    {status: 404, contentType: "text/plain", body: "404 page not found", want: ReasonIngress},
		"empty 404":                  {status: 404, want: ReasonIngress},
		"JSON 404":                   {status: 404, body: `{"detail":"Not Found"}`, want: ReasonNotFound},
		"JSON 404 that was cut":      {status: 404, body: `{"detail":"Not Found"}`, cut: true, want: ReasonIngress},
		"JSON array 404":             {status: 404, body: `[]`, want: ReasonIngress},
		"null 404":                   {status: 404, body: `null`, want: ReasonIngress},
		"plain 500":                  {status: 500, contentType: "text/plain", body: "panic", want: ReasonServerError},
		"plain 503":                  {status: 503, contentType: "text/plain", body: "no healthy upstream", want: ReasonIngress},
		"JSON 503":                   {status: 503, body: `{"exception":"503: inactive_service"}`, want: ReasonServerError},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h := http.Header{}
			if tt.contentType != "" {
				h.Set("Content-Type", tt.contentType)
			}
			a := &answer{Reader: bytes.NewReader(nil), status: tt.status, header: h, body: []byte(tt.body), cut: tt.cut}
			if got := a.reason(); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestErrorTextOfAnswers(t *testing.T) {
	const secret = "s3cr3t-of-the-agent-server"
	long := strings.Repeat("x", 3000)
	tests := map[string]struct {
		status   int
		header   http.Header
		body     string
		contains string
	}{
		"exception":  {status: 500, body: `{"detail":"Internal Server Error","exception":"Failed to refresh MCP tools (1 sub-exception)"}`, contains: "Failed to refresh MCP tools (1 sub-exception)"},
		"echoed key": {status: 422, body: `{"detail":"key ` + secret + ` is odd"}`, contains: redacted},
		"url with a query": {
			status: 500, body: `{"exception":"Client error for url 'http://mcp/x?token=` + secret[:9] + `'"}`,
			contains: "http://mcp/x?" + redacted,
		},
		"long":     {status: 500, body: long, contains: "xxx…"},
		"redirect": {status: 302, header: http.Header{"Location": {"https://login.example/?k=" + secret}}, contains: "https://login.example: set its url"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := &answer{status: tt.status, header: tt.header, body: []byte(tt.body), secrets: []string{secret}}
			text := a.classify().Error()
			if !strings.Contains(text, tt.contains) {
				t.Errorf("%q does not contain %q", text, tt.contains)
			}
			if strings.Contains(text, "s3cr3t") || len(text) > maxErrorText+100 || strings.Contains(text, "\n") {
				t.Errorf("unfit text of %d bytes: %.200s", len(text), text)
			}
		})
	}
}

func TestRedactText(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"plain":         {"connection refused", "connection refused"},
		"known secret":  {"a hunter2 b", "a <redacted> b"},
		"bearer":        {"sent Bearer abc.def to it", "sent Bearer <redacted> to it"},
		"header":        {"Authorization: Bearer abc.def, then", "Authorization: <redacted>, then"},
		"json member":   {`{"api_key": "abc", "n": 1}`, `{"api_key": "<redacted>", "n": 1}`},
		"session id":    {"Mcp-Session-Id: 1868a90c", "Mcp-Session-Id: <redacted>"},
		"userinfo":      {"dial http://bob:pw@host/x", "dial http://<redacted>@host/x"},
		"query":         {"GET https://host/x?k=v failed", "GET https://host/x?<redacted> failed"},
		"control bytes": {"a\r\nb\x00c", "a b c"},
		"invalid utf-8": {"a\xffb", "a b"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := redactText(tt.in, "hunter2", ""); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in90 := now.Add(90 * time.Second)
	tests := map[string]struct {
		values []string
		want   time.Duration
		ok     bool
	}{
		"none":                {},
		"seconds":             {values: []string{"7"}, want: 7 * time.Second, ok: true},
		"spaces":              {values: []string{" 7 "}, want: 7 * time.Second, ok: true},
		"zero":                {values: []string{"0"}, ok: true},
		"negative":            {values: []string{"-1"}},
		"fraction":            {values: []string{"1.5"}},
		"capped":              {values: []string{"86400"}, want: maxRetryAfter, ok: true},
		"more than fits":      {values: []string{"99999999999999999999999"}, want: maxRetryAfter, ok: true},
		"IMF-fixdate":         {values: []string{in90.Format(http.TimeFormat)}, want: 90 * time.Second, ok: true},
		"RFC 850":             {values: []string{in90.Format("Monday, 02-Jan-06 15:04:05 GMT")}, want: 90 * time.Second, ok: true},
		"asctime":             {values: []string{in90.Format(time.ANSIC)}, want: 90 * time.Second, ok: true},
		"date that is past":   {values: []string{now.Add(-time.Hour).Format(http.TimeFormat)}, ok: true},
		"date far away":       {values: []string{now.Add(time.Hour).Format(http.TimeFormat)}, want: maxRetryAfter, ok: true},
		"first valid counts":  {values: []string{"soon", "", "3", "9"}, want: 3 * time.Second, ok: true},
		"nothing valid":       {values: []string{"soon", "later"}},
		"not a date of HTTP":  {values: []string{in90.Format(time.RFC3339)}},
		"plus sign":           {values: []string{"+5"}},
		"hexadecimal is none": {values: []string{"0x10"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := retryAfter(http.Header{"Retry-After": tt.values}, now)
			if got != tt.want || ok != tt.ok {
				t.Errorf("got %v %t, want %v %t", got, ok, tt.want, tt.ok)
			}
		})
	}
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("7", "Sun, 01 Mar 2026 12:01:30 GMT")
	f.Add("soon", "-1")
	f.Fuzz(func(t *testing.T, a, b string) {
		d, ok := retryAfter(http.Header{"Retry-After": {a, b}}, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
		if d < 0 || d > maxRetryAfter || (!ok && d != 0) {
			t.Errorf("%q, %q: %v %t", a, b, d, ok)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add(500, "application/json", []byte(`{"detail":[{"loc":["body"]}],"exception":"x"}`))
	f.Add(404, "text/html", []byte(`<html>`))
	f.Add(200, "", []byte(`{"servers":[{"server":"a","connected":false,"error":null}]}`))
	f.Fuzz(func(t *testing.T, status int, contentType string, body []byte) {
		const secret = "fuzz-canary-secret"
		a := &answer{
			status: status, header: http.Header{"Content-Type": {contentType}},
			body: append(body, secret...), secrets: []string{secret},
		}
		for _, err := range []error{a.connected([]string{"default"}), func() error {
			if e := a.classify(); e != nil {
				return e
			}

			return nil
		}()} {
			if err == nil {
				continue
			}
			if ReasonOf(err) == "" || strings.Contains(err.Error(), secret) || len(err.Error()) > 3*maxErrorText {
				t.Errorf("%q: %.300s", ReasonOf(err), err)
			}
		}
	})
}
