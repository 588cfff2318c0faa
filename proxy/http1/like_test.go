package http1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// everything answers in all the ways that a handler can.
func everything() http.Handler {
	mux := http.NewServeMux()

	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprintf(w, "%s %s %q %v %d %v", r.Method, r.URL, body, err, r.ContentLength, r.Header["X-A"])
	})
	mux.HandleFunc("/known", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "hello")
	})
	mux.HandleFunc("/large", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "1000000")
		_, _ = w.Write(bytes.Repeat([]byte("l"), 1000000))
	})
	mux.HandleFunc("/endless", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")

		for range 30 {
			_, _ = w.Write(bytes.Repeat([]byte("e"), 10000))
		}
	})
	mux.HandleFunc("/flushed", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		_, _ = io.WriteString(w, "one")
		_ = http.NewResponseController(w).Flush()
		_, _ = io.WriteString(w, "")
		_, _ = io.WriteString(w, "two")
	})
	mux.HandleFunc("/flush", func(w http.ResponseWriter, _ *http.Request) {
		if f, ok := w.(http.Flusher); ok {
			f.Flush()
		}
	})
	mux.HandleFunc("/nothing", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/accepted", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusAccepted) })
	mux.HandleFunc("/status", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(299)
		w.WriteHeader(http.StatusInternalServerError)
	})
	mux.HandleFunc("/empty", func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusNoContent)

		if _, err := io.WriteString(w, "x"); !errors.Is(err, http.ErrBodyNotAllowed) {
			panic("a body for 204")
		}
	})
	mux.HandleFunc("/unchanged", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "7")
		w.WriteHeader(http.StatusNotModified)
	})
	mux.HandleFunc("/more", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Content-Length", "2")

		if n, err := io.WriteString(w, "more"); !errors.Is(err, http.ErrContentLength) {
			panic(fmt.Sprintf("%d bytes of 2, %v", n, err))
		}

		_, _ = io.WriteString(w, "") // not even the two
	})
	mux.HandleFunc("/fields", func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h["Content-Type"] = nil
		h["X-Two"] = []string{"a", "b"}
		h["Bad Name"] = []string{"x"}
		h["Date"] = []string{"today"}
		_, _ = io.WriteString(w, "fields")
	})
	mux.HandleFunc("/bye", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.Header().Set("Connection", "close")
		_, _ = io.WriteString(w, "bye")
	})
	mux.HandleFunc("/unread", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = io.WriteString(w, "no")
	})
	mux.HandleFunc("/twice", func(w http.ResponseWriter, r *http.Request) {
		_, err := io.ReadAll(r.Body)
		_ = r.Body.Close()
		_, closed := r.Body.Read(make([]byte, 1))
		w.Header().Set("Content-Type", "text/plain")
		fmt.Fprint(w, err, closed)
	})

	return mux
}

// TestLikeNetHTTP: clients can't tell which server they have.
func TestLikeNetHTTP(t *testing.T) {
	t.Parallel()

	quiet := func() *http.Server {
		return &http.Server{Handler: everything(), ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	}

	std, ours := serve(t, quiet()), start(t, quiet())

	for name, c := range map[string]struct {
		sent   string
		method string
		n      int  // answers
		closes bool // afterwards, without being asked
	}{
		"a call":                  {sent: post("/echo", "{}"), n: 1},
		"two calls":               {sent: post("/echo", "{}", "X-A: 1") + post("/echo", "[]", "X-A: 2"), n: 2},
		"an unread body":          {sent: post("/known", "{}") + post("/echo", ""), n: 2},
		"a large unread body":     {sent: post("/unread", strings.Repeat("x", 1<<20)), n: 1, closes: true},
		"a body that is read":     {sent: post("/echo", strings.Repeat("x", 1<<18)) + get("/known"), n: 2},
		"a body that is closed":   {sent: post("/twice", "{}"), n: 1},
		"chunks":                  {sent: "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n" + post("/echo", "!"), n: 2},
		"first ours, then chunks": {sent: post("/echo", "!") + "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n", n: 2},
		"an expectation":          {sent: post("/echo", "{}", "Expect: 100-continue"), n: 2},
		"known length":            {sent: get("/known"), n: 1},
		"large":                   {sent: get("/large") + get("/known"), n: 2},
		"endless":                 {sent: get("/endless") + get("/known"), n: 2},
		"flushed":                 {sent: get("/flushed") + get("/known"), n: 2},
		"only a flush":            {sent: get("/flush") + get("/known"), n: 2},
		"nothing":                 {sent: get("/nothing") + get("/known"), n: 2},
		"202":                     {sent: post("/accepted", "{}") + get("/known"), n: 2},
		"an unknown status":       {sent: get("/status"), n: 1},
		"204":                     {sent: get("/empty") + get("/known"), n: 2},
		"304":                     {sent: get("/unchanged") + get("/known"), n: 2},
		"odd fields":              {sent: get("/fields"), n: 1},
		"the server says bye":     {sent: get("/bye"), n: 1, closes: true},
		"the client says bye":     {sent: get("/known", "Connection: close"), n: 1, closes: true},
		"it keeps alive":          {sent: get("/known", "Connection: keep-alive") + get("/known"), n: 2},
		"HEAD":                    {sent: "HEAD /known HTTP/1.1\r\nHost: a\r\n\r\n", method: http.MethodHead, n: 1},
		"OPTIONS":                 {sent: "OPTIONS /echo HTTP/1.1\r\nHost: a\r\n\r\n", n: 1},
		"HTTP/1.0":                {sent: "GET /known HTTP/1.0\r\n\r\n", n: 1, closes: true},
		"no host":                 {sent: "GET /known HTTP/1.1\r\n\r\n", n: 1, closes: true},
		"two hosts":               {sent: get("/known", "Host: b"), n: 1, closes: true},
		"two lengths":             {sent: post("/known", "{}", "Content-Length: 3"), n: 1, closes: true},
		"length and chunks":       {sent: post("/echo", "2\r\nhi\r\n0\r\n\r\n", "Transfer-Encoding: chunked"), n: 1},
		"unknown encoding":        {sent: post("/echo", "", "Transfer-Encoding: gzip"), n: 1, closes: true},
		"nonsense":                {sent: "nonsense\r\n\r\n", n: 1, closes: true},
		"a bare line feed":        {sent: "GET /known HTTP/1.1\nHost: a\n\n", n: 1},
		"a folded field":          {sent: get("/echo", "X-A: a\r\n b"), n: 1},
		"a large head":            {sent: get("/echo", "X-A: "+strings.Repeat("a", 20<<10)), n: 1},
		"no such path":            {sent: get("/none"), n: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			of := func(addr string) (answers []answer) {
				conn := dial(t, addr)

				go func() { _, _ = io.WriteString(conn.Conn, c.sent) }()

				for range c.n {
					a := conn.answer(c.method)
					if a.Header.Get("Date") == "" && a.Code < 400 && a.Code > 199 {
						t.Error("there is no date")
					}

					a.Header.Del("Date")

					answers = append(answers, a)
				}

				if c.closes {
					conn.closed()
					return answers
				}

				conn.send(get("/known", "Connection: close"))

				if a := conn.answer(http.MethodGet); a.Code != http.StatusOK || a.Body != "hello" {
					t.Errorf("the next answer is %s %q", a.Status, a.Body)
				}

				return answers
			}

			if diff := cmp.Diff(of(std), of(ours)); diff != "" {
				t.Errorf("-net/http +ours:\n%s", diff)
			}
		})
	}
}
