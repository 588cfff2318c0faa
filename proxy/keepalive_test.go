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
