package proxy

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/proxy/http1"
)

// pooled is an answer that came over a connection of a pool, allocated at one time.
type pooled struct {
	resp  http.Response // unless net/http has read it
	body  poolBody
	sized sizedBody
}

// ordinary reads the header of an answer that has the form of nearly all: it came in
// one piece, and leaves no doubt about where its body ends. It returns nil, and
// nothing is read then, for one that is left to net/http.
//
// Most answers on a connection have the same lines as the one before. Those aren't
// read anew.
func (c *poolConn) ordinary(req *http.Request, a *pooled) *http.Response {
	head, _ := c.r.Peek(c.r.Buffered())

	end := bytes.Index(head, []byte("\r\n\r\n"))
	if end < 0 || req.Method == http.MethodHead {
		return nil
	}

	line, lines, _ := bytes.Cut(head[:end+len("\r\n")], []byte("\r\n"))
	fields := c.fields

	status, ok := ordinaryStatus(line)
	if !ok || !fields.Read(lines) {
		return nil
	}

	if req.Method == http.MethodPost { // what is sent again and again
		c.fields = fields
	}

	a.resp = http.Response{
		StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: fields.Header(), ContentLength: -1,
	}

	if !c.framed(a, fields) {
		return nil
	}

	_, _ = c.r.Discard(end + len("\r\n\r\n")) // it is buffered

	return &a.resp
}

// framed finds out how the body of an answer ends. It returns false when net/http has
// to do that.
func (c *poolConn) framed(a *pooled, fields http1.Fields) bool {
	resp := &a.resp
	chunked := false

	for i := range fields {
		f := &fields[i]

		switch f.Name {
		case "Content-Length":
			if resp.ContentLength >= 0 || chunked || !http1.IsLength(f.Value) {
				return false
			}

			resp.ContentLength, _ = strconv.ParseInt(f.Value, 10, 64)
		case "Transfer-Encoding":
			if resp.ContentLength >= 0 || chunked || f.Value != "chunked" {
				return false
			}

			chunked = true

			delete(resp.Header, f.Name)
		case "Connection":
			switch {
			case f.Value == "close":
				resp.Close = true

				delete(resp.Header, f.Name)
			case !strings.EqualFold(f.Value, "keep-alive"):
				return false
			}
		case "Trailer", "Upgrade", "Pragma":
			return false
		}
	}

	switch {
	case chunked:
		resp.Body = &chunkedBody{httputil.NewChunkedReader(c.r), c.r}
	case resp.ContentLength > 0:
		a.sized = sizedBody{c.r, resp.ContentLength}
		resp.Body = &a.sized
	case resp.ContentLength == 0:
		resp.Body = http.NoBody
	default:
		return false
	}

	return true
}

// ordinaryStatus reads the first line of a final answer that may have a body.
func ordinaryStatus(line []byte) (int, bool) {
	rest, ok := bytes.CutPrefix(line, []byte("HTTP/1.1 "))
	if !ok || len(rest) < 3 || len(rest) > 3 && rest[3] != ' ' {
		return 0, false
	}

	status, err := strconv.Atoi(string(rest[:3]))
	if err != nil || status < http.StatusOK || status == http.StatusNoContent || status == http.StatusNotModified {
		return 0, false
	}

	return status, true
}

// sizedBody is a body whose length was told. Its end comes with its last byte.
type sizedBody struct {
	r    *bufio.Reader
	left int64
}

func (b *sizedBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, io.EOF
	}

	if int64(len(p)) > b.left {
		p = p[:b.left]
	}

	n, err := b.r.Read(p)

	switch b.left -= int64(n); {
	case b.left == 0:
		return n, io.EOF
	case err != nil:
		return n, unexpected(err)
	}

	return n, nil
}

func (b *sizedBody) Close() error { return nil }

// chunkedBody is a body in chunks. Its end comes with its last byte, if the backend
// sent them together.
type chunkedBody struct {
	chunks io.Reader // what is in them
	r      *bufio.Reader
}

func (b *chunkedBody) Read(p []byte) (int, error) {
	n, err := b.chunks.Read(p)
	if err == io.EOF { //nolint:errorlint // it is never wrapped
		err = b.trailer()
	}

	return n, err //nolint:wrapcheck // io.EOF must stay what it is
}

// trailer reads what follows the last chunk: nobody looks at it.
func (b *chunkedBody) trailer() error {
	for left := maxHeader; ; {
		line, err := b.r.ReadSlice('\n')

		switch left -= len(line); {
		case err != nil:
			return unexpected(err)
		case len(bytes.TrimRight(line, "\r\n")) == 0:
			return io.EOF
		case left < 0:
			return errHeaderTooLarge
		}
	}
}

func (b *chunkedBody) Close() error { return nil }
