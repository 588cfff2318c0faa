package admin

import (
	"bufio"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// reader is one connection to the feed.
type reader struct {
	t    *testing.T
	resp *http.Response
	in   *bufio.Scanner
}

func connect(t *testing.T, srv *httptest.Server, lastID string) *reader {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, srv.URL+"/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	resp, err := srv.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	if ct := resp.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Fatalf("%d, Content-Type %q", resp.StatusCode, ct)
	}
	c := &reader{t: t, resp: resp, in: bufio.NewScanner(resp.Body)}
	if first := c.block(); !strings.HasPrefix(first, ": ") {
		t.Fatalf("first block %q", first)
	}
	return c
}

// block reads up to the next empty line; "" at the end.
func (c *reader) block() string {
	var b []string
	for c.in.Scan() {
		if c.in.Text() == "" {
			return strings.Join(b, "\n")
		}
		b = append(b, c.in.Text())
	}
	return ""
}

func TestFeed(t *testing.T) {
	feed := NewFeed()
	srv := httptest.NewServer(New(newFake().deps(feed)))
	defer srv.Close()
	when := *at("2026-01-02T03:04:05Z")

	a := connect(t, srv, "")
	for i := range 3 {
		feed.Publish(Event{Type: "generation", At: when, Server: "default", Generation: uint64(i + 1)})
	}
	for i := range 3 {
		want := fmt.Sprintf("id: %d\nevent: generation\ndata: {\"type\":\"generation\",\"at\":\"2026-01-02T03:04:05Z\",\"server\":\"default\",\"generation\":%d}", i+1, i+1)
		if got := a.block(); got != want {
			t.Errorf("event %d:\n%s\nwant\n%s", i, got, want)
		}
	}
	if got := connect(t, srv, "2").block(); !strings.HasPrefix(got, "id: 3\n") {
		t.Errorf("after event 2 comes %q", got)
	}
	if got := connect(t, srv, "99").block(); !strings.HasPrefix(got, "id: 1\n") {
		t.Errorf("with an id of an earlier process comes %q", got)
	}

	feed.Close()
	if got := a.block(); got != "" {
		t.Errorf("after the end comes %q", got)
	}
	feed.Publish(Event{Type: "swap"})
	if w := send(New(newFake().deps(feed)), "GET", "/v1/events", ""); w.Code != 503 {
		t.Errorf("a closed feed answers %d", w.Code)
	}
}

func TestFeedDropsSlowReaders(t *testing.T) {
	feed := NewFeed()
	_, slow := feed.subscribe(0)
	_, quick := feed.subscribe(0)
	for range feedQueue + 1 {
		feed.Publish(Event{Type: "swap"})
		<-quick
	}
	n := 0
	for range slow { // ends: the feed has closed it
		n++
	}
	if n != feedQueue {
		t.Errorf("the slow reader got %d events before it was dropped, want %d", n, feedQueue)
	}
	feed.Publish(Event{Type: "swap"})
	if _, ok := <-quick; !ok {
		t.Error("the quick reader was dropped too")
	}
	missed, _ := feed.subscribe(3)
	if len(missed) != feedQueue+2-3 || missed[0].id != 4 {
		t.Errorf("%d missed events from %d", len(missed), missed[0].id)
	}
	for range feedHistory + 10 {
		feed.Publish(Event{Type: "swap"})
	}
	if missed, _ := feed.subscribe(0); len(missed) != feedHistory {
		t.Errorf("%d events kept", len(missed))
	}
}

func TestFeedBoundsReaders(t *testing.T) {
	feed := NewFeed()
	for range maxSubscribers {
		feed.subscribe(0)
	}
	if w := send(New(newFake().deps(feed)), "GET", "/v1/events", ""); w.Code != 503 {
		t.Errorf("one too many: %d", w.Code)
	}
}

// TestFeedKeepsAlive reads through a recorder in virtual time.
func TestFeedKeepsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		feed := NewFeed()
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			feed.serve(w, httptest.NewRequest(http.MethodGet, "/v1/events", nil))
		}()
		time.Sleep(2*feedKeepAlive + time.Second)
		feed.Close()
		<-done
		if got := strings.Count(w.Body.String(), "\n:\n"); got != 2 {
			t.Errorf("%d keep-alive comments in %q", got, w.Body)
		}
	})
}
