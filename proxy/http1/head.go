package http1

import (
	"bytes"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Bounds on what is remembered of a connection's requests, and on what is read here
// at all.
const (
	maxHead   = 16 << 10
	maxFields = 64
	maxLine   = 1 << 10
)

// heads reads the heads of a connection's requests. Most are like the one before:
// what is the same isn't read anew.
type heads struct {
	line   string // the request line of the last one
	method string
	target string
	url    *url.URL
	fields []field
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

	n := 0

	for ; len(rest) > len("\r\n"); n++ {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))

		switch {
		case n >= maxFields || len(line) > maxLine:
			return false
		case n >= len(h.fields):
			h.fields = append(h.fields, parseField(string(line)))
		case string(line) != h.fields[n].raw:
			h.fields[n] = parseField(string(line))
		}
	}

	h.fields = h.fields[:n]

	return h.fill(req)
}

// requestLine reads METHOD TARGET HTTP/1.1.
func (h *heads) requestLine(line string) bool {
	method, rest, _ := strings.Cut(line, " ")
	target, version, _ := strings.Cut(rest, " ")

	if version != "HTTP/1.1" || !isToken(method) || method == http.MethodHead || !isTarget(target) {
		return false
	}

	u, err := url.ParseRequestURI(target)
	if err != nil || len(line) > maxLine {
		return false
	}

	h.line, h.method, h.target, h.url = line, method, target, u

	return true
}

// fill puts what the fields say into req.
func (h *heads) fill(req *http.Request) bool {
	header := make(http.Header, len(h.fields))
	values := make([]string, len(h.fields)) // of all fields that come once

	hosts, lengths, connections := 0, 0, 0
	req.ContentLength, req.Close = 0, false

	for i := range h.fields {
		f := &h.fields[i]

		switch f.meaning {
		case oddField:
			return false
		case hostField:
			hosts++
			req.Host = f.value

			continue
		case lengthField:
			lengths++
			req.ContentLength, _ = strconv.ParseInt(f.value, 10, 64)
		case keepField, closeField:
			connections++
			req.Close = f.meaning == closeField
		case plain:
		}

		values[i] = f.value

		if before := header[f.name]; before != nil {
			header[f.name] = append(before, f.value)
		} else {
			header[f.name] = values[i : i+1 : i+1]
		}
	}

	// Readers disagree on which of two would count.
	if hosts != 1 || lengths > 1 || connections > 1 {
		return false
	}

	u := *h.url
	req.Method, req.URL, req.RequestURI, req.Header = h.method, &u, h.target, header
	req.Proto, req.ProtoMajor, req.ProtoMinor = "HTTP/1.1", 1, 1

	return true
}
