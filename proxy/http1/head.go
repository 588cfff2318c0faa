package http1

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// maxHead is the size of a head from which on it is left to net/http.
const maxHead = 16 << 10

// heads reads the heads of a connection's requests, of which most are like the one
// before.
type heads struct {
	line   string // the request line of the last one
	method string
	target string
	url    *url.URL // nil before the first
	fields Fields
}

// headLength returns the length of the head that b begins with, 0 when there is
// more to come, and false when b can't be the beginning of a head that is read here.
func headLength(b []byte) (int, bool) {
	if end := bytes.Index(b, []byte("\r\n\r\n")); end >= 0 {
		return end + len("\r\n\r\n"), true
	}

	// The last byte may be half of a line's end.
	for rest := b; ; {
		i := bytes.IndexByte(rest, '\n')
		if i < 0 {
			return 0, len(b) < maxHead
		}

		if i == 0 || rest[i-1] != '\r' {
			return 0, false
		}

		rest = rest[i+1:]
	}
}

// read fills in req from a whole head. It returns false for one that is left to
// net/http; req is unusable then.
func (h *heads) read(head []byte, req *http.Request) bool {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))

	if (h.url == nil || string(line) != h.line) && !h.requestLine(string(line)) {
		return false
	}

	return h.fields.Read(rest[:len(rest)-len("\r\n")]) && h.fill(req)
}

// requestLine reads METHOD TARGET HTTP/1.1.
func (h *heads) requestLine(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")

	if version != "HTTP/1.1" || !IsToken(method) || method == http.MethodHead || !isTarget(target) || len(line) > maxLine {
		return false
	}

	u, err := url.ParseRequestURI(target)
	if err != nil {
		return false
	}

	h.line, h.method, h.target, h.url = line, method, target, u

	return true
}

// fill puts what was read into req. Where a connection's next request begins must be
// beyond doubt.
func (h *heads) fill(req *http.Request) bool {
	hosts, lengths, connections := 0, 0, 0
	req.ContentLength, req.Close = 0, false

	for i := range h.fields {
		f := &h.fields[i]

		switch f.Name {
		case "Host":
			hosts++

			if req.Host = f.Value; !isHost(f.Value) {
				return false
			}
		case "Content-Length":
			lengths++

			if !IsLength(f.Value) {
				return false
			}

			req.ContentLength, _ = strconv.ParseInt(f.Value, 10, 64)
		case "Connection":
			connections++

			if req.Close = strings.EqualFold(f.Value, "close"); !req.Close && !strings.EqualFold(f.Value, "keep-alive") {
				return false
			}
		case "Transfer-Encoding", "Expect", "Upgrade", "Trailer", "Te", "Keep-Alive", "Proxy-Connection", "Pragma":
			return false
		}
	}

	// Readers disagree on which of two would count.
	if hosts != 1 || lengths > 1 || connections > 1 {
		return false
	}

	u := *h.url
	req.Method, req.URL, req.RequestURI = h.method, &u, h.target
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/1.1", 1, 1
	req.Header = h.fields.Header()
	delete(req.Header, "Host")

	return true
}

// isHost reports whether s is a host and perhaps a port as they are ordinarily
// written.
func isHost(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case strings.IndexByte("-._:[]", c) < 0:
			return false
		}
	}

	return s != ""
}

// isTarget reports whether s is a path, perhaps with a query (RFC 9112 section
// 3.2.1).
func isTarget(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f {
			return false
		}
	}

	return s != "" && s[0] == '/'
}
