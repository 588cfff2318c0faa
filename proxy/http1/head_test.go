package http1

import (
	"bufio"
	"bytes"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const ordinary = "POST /mcp?x=%31 HTTP/1.1\r\nHost: localhost:8080\r\nContent-Type: application/json\r\n" +
	"accept: application/json\r\nAccept:  text/event-stream \r\nMCP-Session-Id: a.b\r\nContent-Length: 12\r\n\r\n"

// readsLikeNetHTTP checks that a head that is read here means the same to net/http,
// and returns whether it is.
func readsLikeNetHTTP(t *testing.T, h *heads, head []byte) bool {
	t.Helper()

	n, ok := headLength(head)

	var got http.Request
	if !ok || n == 0 || !h.read(head[:n], &got) {
		return false
	}

	r := bufio.NewReader(bytes.NewReader(head))

	want, err := http.ReadRequest(r)
	if err != nil {
		t.Fatalf("net/http doesn't read %q: %v", head[:n], err)
	}

	// The server takes it out; ReadRequest leaves that to it.
	want.Header.Del("Host")

	type request struct {
		Method, URI, URL, Host, Proto string
		Header                        http.Header
		Length                        int64
		Close                         bool
	}

	of := func(r *http.Request) request {
		return request{r.Method, r.RequestURI, r.URL.String(), r.Host, r.Proto, r.Header, r.ContentLength, r.Close}
	}

	if diff := cmp.Diff(of(want), of(&got)); diff != "" {
		t.Errorf("%q reads differently (-net/http +ours):\n%s", head[:n], diff)
	}

	// What both leave is the body.
	rest, _ := r.Peek(r.Buffered())
	if read := len(head) - len(rest); len(head) < 4096 && read != n {
		t.Errorf("the head of %q ends after %d bytes, for net/http after %d", head, n, read)
	}

	return true
}

func TestHead(t *testing.T) {
	t.Parallel()

	with := func(lines string) string { return "POST /mcp HTTP/1.1\r\nHost: a\r\n" + lines + "\r\n\r\n" }

	for head, ours := range map[string]bool{
		ordinary:                            true,
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n": true,
		"GET //b/c HTTP/1.1\r\nHost: [::1]:1\r\n\r\n": true,
		with("Connection: Keep-Alive"):                true,
		with("Connection: close"):                     true,
		with("X: a\r\nx: b\r\nX: c"):                  true,
		with("X:"):                                    true,
		with("X: \xff\tb"):                            true,
		with("Content-Length: 007"):                   true,

		with("Connection: X-Secret"):                                      false,
		with("Connection: close\r\nConnection: keep-alive"):               false,
		with("Content-Length: 1\r\nContent-Length: 1"):                    false,
		with("Content-Length: +1"):                                        false,
		with("Content-Length: 1, 1"):                                      false,
		with("Content-Length: 1000000000000000000"):                       false,
		with("Content-Length:"):                                           false,
		with("Transfer-Encoding: chunked"):                                false,
		with("Transfer-Encoding: chunked\r\nContent-Length: 1"):           false,
		with("Expect: 100-continue"):                                      false,
		with("Upgrade: websocket"):                                        false,
		with("Host: b"):                                                   false,
		with("X : a"):                                                     false,
		with("X: a\r\n b"):                                                false,
		with(" X: a"):                                                     false,
		with("X: a\rb"):                                                   false,
		with("X: a\nb: c"):                                                false,
		with("X: \x00"):                                                   false,
		with(": a"):                                                       false,
		with("X"):                                                         false,
		with("X: " + strings.Repeat("a", maxLine)):                        false,
		with(strings.Repeat("X: a\r\n", maxFields) + "Y: b"):              false,
		"POST /mcp HTTP/1.1\r\n\r\n":                                      false,
		"POST /mcp HTTP/1.1\r\nHost: a b\r\n\r\n":                         false,
		"POST /mcp HTTP/1.1\r\nHost: a/b\r\n\r\n":                         false,
		"POST /mcp HTTP/1.1\nHost: a\n\n":                                 false,
		"POST /mcp HTTP/1.0\r\nHost: a\r\n\r\n":                           false,
		"POST /mcp HTTP/1.1 \r\nHost: a\r\n\r\n":                          false,
		"POST  /mcp HTTP/1.1\r\nHost: a\r\n\r\n":                          false,
		"POST http://a/mcp HTTP/1.1\r\nHost: a\r\n\r\n":                   false,
		"POST /%zz HTTP/1.1\r\nHost: a\r\n\r\n":                           false,
		"POST /\xc3\xa4 HTTP/1.1\r\nHost: a\r\n\r\n":                      false,
		"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n":                              false,
		"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n":                           false,
		"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n":                         false,
		"P/ST / HTTP/1.1\r\nHost: a\r\n\r\n":                              false,
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":                                false,
		"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n":                           false,
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n":            false,
		"GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("a", maxHead): false,
	} {
		if got := readsLikeNetHTTP(t, new(heads), []byte(head)); got != ours {
			t.Errorf("%.80q is read here: %t, want %t", head, got, ours)
		}
	}
}

// TestNextHead: what is remembered of one request doesn't show in the next.
func TestNextHead(t *testing.T) {
	t.Parallel()

	var h heads

	first := ordinary
	for _, next := range []string{
		ordinary,
		strings.Replace(ordinary, "12", "13", 1),
		strings.Replace(ordinary, "/mcp", "/other", 1),
		strings.Replace(ordinary, "a.b", "a.c", 1),
		strings.Replace(ordinary, "accept: application/json\r\n", "", 1),
		strings.Replace(ordinary, "Host: localhost:8080\r\n", "X: y\r\nHost: localhost:8080\r\nZ: z\r\n", 1),
		"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
	} {
		for _, head := range []string{first, next, next, first} {
			if !readsLikeNetHTTP(t, &h, []byte(head)) {
				t.Errorf("%q isn't read", head)
			}
		}
	}

	// A handler may change what it was given.
	var one, two http.Request
	if !h.read([]byte(ordinary), &one) {
		t.Fatal("not read")
	}

	one.URL.Path = "/changed"
	one.Header.Set("Accept", "changed")
	one.Header["Content-Type"][0] = "changed"

	if !h.read([]byte(ordinary), &two) || two.URL.Path != "/mcp" || two.Header.Get("Content-Type") != "application/json" {
		t.Errorf("the next request has what was done to the one before: %v %v", two.URL, two.Header)
	}
}

// FuzzHead: what is read here means the same to net/http, also after another
// request.
func FuzzHead(f *testing.F) {
	f.Add([]byte(ordinary), []byte(ordinary))
	f.Add([]byte("GET / HTTP/1.1\r\nHost: a\r\n\r\n"), []byte(ordinary))
	f.Add([]byte("GET /a?b#c HTTP/1.1\r\nHost: a\r\nX: \r\nConnection: close\r\n\r\nrest"), []byte("\n\n"))

	f.Fuzz(func(t *testing.T, first, second []byte) {
		var h heads

		readsLikeNetHTTP(t, &h, first)
		readsLikeNetHTTP(t, &h, second)
	})
}

// TestHeadLength: a head is found wherever the reads happen to end.
func TestHeadLength(t *testing.T) {
	t.Parallel()

	for i := range len(ordinary) {
		if n, ok := headLength([]byte(ordinary[:i])); n != 0 || !ok {
			t.Fatalf("%q is a head of %d bytes, %t", ordinary[:i], n, ok)
		}
	}

	if n, ok := headLength([]byte(ordinary + "{}")); n != len(ordinary) || !ok {
		t.Errorf("the head has %d bytes, %t; want %d", n, ok, len(ordinary))
	}
}
