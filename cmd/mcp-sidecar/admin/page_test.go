package admin

import (
	"strings"
	"testing"
)

// TestPageNeedsNoToken: the page asks for the token itself, and shows nothing without it.
func TestPageNeedsNoToken(t *testing.T) {
	d := newFake().deps(NewFeed())
	d.Token = func() (string, bool, error) { return "secret", true, nil }
	h := New(d)
	for path, contentType := range map[string]string{
		"/": "text/html; charset=utf-8", "/page.css": "text/css; charset=utf-8",
		"/page.js": "text/javascript; charset=utf-8", "/dom.js": "text/javascript; charset=utf-8", "/icon.svg": "image/svg+xml",
	} {
		w := send(h, "GET", path, "")
		if w.Code != 200 || w.Header().Get("Content-Type") != contentType || w.Body.Len() == 0 {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
		csp := w.Header().Get("Content-Security-Policy")
		if !strings.HasPrefix(csp, "default-src 'none';") || strings.Contains(csp, "unsafe") {
			t.Errorf("%s: policy %q", path, csp)
		}
		if again := send(h, "GET", path, "", "If-None-Match", w.Header().Get("ETag")); again.Code != 304 {
			t.Errorf("%s unchanged: %d", path, again.Code)
		}
	}
	for _, target := range []string{"/v1/status", "/v1/servers/default", "/v1/events", "/page.html"} {
		if w := send(h, "GET", target, ""); w.Code != 401 {
			t.Errorf("%s without the token: %d", target, w.Code)
		}
	}
	if w := send(h, "POST", "/", ""); w.Code != 401 {
		t.Errorf("POST without the token: %d", w.Code)
	}
}

func TestOneServer(t *testing.T) {
	h := New(newFake().deps(NewFeed()))
	if w := send(h, "GET", "/v1/servers/default", ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"generation":2`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if p := problemOf(t, send(h, "GET", "/v1/servers/x", "")); p.Type != typePrefix+"unknown-server" {
		t.Errorf("%+v", p)
	}
}

// TestFeedKeepsSwaps: what is rare isn't pushed out by refreshes.
func TestFeedKeepsSwaps(t *testing.T) {
	feed := NewFeed()
	feed.Publish(Event{Type: "swap"})
	for range feedRefreshes + 10 {
		feed.Publish(Event{Type: "refresh"})
	}
	feed.Publish(Event{Type: "swap"})
	missed, _ := feed.subscribe(0)
	if len(missed) != feedRefreshes+2 || missed[0].id != 1 || missed[len(missed)-1].kind != "swap" {
		t.Errorf("%d events from %d to a %s", len(missed), missed[0].id, missed[len(missed)-1].kind)
	}
	for i := range missed[1:] {
		if missed[i].id >= missed[i+1].id {
			t.Fatalf("event %d comes before %d", missed[i].id, missed[i+1].id)
		}
	}
}
