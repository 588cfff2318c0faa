package proxy

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeepAliveWhileAway: a stream gets its comments however often it is looked whether the backend is back.
func TestKeepAliveWhileAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		c := &clientStream{
			w: w, rc: http.NewResponseController(w), every: 5 * time.Second,
			first: func() {}, stop: func(error) { t.Error("it was ended") },
		}

		for range 11 {
			if err := c.begin(); err != nil {
				t.Fatal(err)
			}

			time.Sleep(2 * time.Second)
		}

		c.close()

		if n := strings.Count(w.Body.String(), ": keep-alive\n"); n != 4 {
			t.Errorf("%d comments in 22 s", n)
		}
	})
}

// TestKeepAliveWhileTried: what is held gets its comments however often it is tried.
func TestKeepAliveWhileTried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := &exchange{
			cfg: &Config{HeldComment: 10 * time.Second, KeepAlive: 5 * time.Second}, start: time.Now(),
			acceptsStream: true,
		}
		x.out.begin(httptest.NewRecorder(), func() {})

		want := func(d time.Duration) {
			t.Helper()

			if got := x.commentAfter(); got != d {
				t.Errorf("after %v the next comment is due in %v, want %v", time.Since(x.start), got, d)
			}
		}

		want(10 * time.Second)
		time.Sleep(9 * time.Second)
		want(time.Second)
		time.Sleep(time.Second)
		want(0)

		if err := x.out.comment(""); err != nil {
			t.Fatal(err)
		}

		want(5 * time.Second)
		time.Sleep(3 * time.Second)
		want(2 * time.Second)
		time.Sleep(3 * time.Second)
		want(0)
	})
}
