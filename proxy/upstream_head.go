package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/mcp-sidecar/mcp-sidecar/proxy/http1"
)

var (
	errBadRequest = errors.New("the request can't be sent: it has control bytes or spaces where none may be")
	errBodyLength = errors.New("the request can't be sent: its length is not known")
)

// sentBody is a body that is there as a whole.
type sentBody struct {
	b    []byte
	read int
}

func (s *sentBody) Read(p []byte) (int, error) {
	if s.read == len(s.b) {
		return 0, io.EOF
	}

	n := copy(p, s.b[s.read:])
	s.read += n

	return n, nil
}

func (s *sentBody) Close() error { return nil }

// wholeBody returns the body of a request as a whole.
func wholeBody(req *http.Request) ([]byte, error) {
	if s, ok := req.Body.(*sentBody); ok {
		return s.b, nil
	}

	if req.Body == nil || req.Body == http.NoBody {
		return nil, nil
	}

	defer func() { _ = req.Body.Close() }()

	if req.ContentLength <= 0 {
		return nil, errBodyLength
	}

	b := make([]byte, req.ContentLength)
	if _, err := io.ReadFull(req.Body, b); err != nil {
		return nil, fmt.Errorf("reading the body of a request: %w", err)
	}

	return b, nil
}

// appendHead appends the head of a request whose body has this length.
func appendHead(b []byte, req *http.Request, length int) ([]byte, error) {
	uri := req.URL.RequestURI()

	host := req.Host
	if host == "" {
		host = req.URL.Host
	}

	if !http1.IsToken(req.Method) || !visible(uri) || !visible(host) || host == "" {
		return nil, errBadRequest
	}

	b = append(append(append(b, req.Method...), ' '), uri...)
	b = append(append(b, " HTTP/1.1\r\nHost: "...), withoutZone(host)...)

	for name, values := range req.Header {
		for _, v := range values {
			if !http1.IsToken(name) || !http1.IsValue(v) {
				return nil, errBadRequest
			}

			b = append(append(append(append(b, "\r\n"...), name...), ": "...), v...)
		}
	}

	if length > 0 || req.Method == http.MethodPost || req.Method == http.MethodPut || req.Method == http.MethodPatch {
		b = strconv.AppendInt(append(b, "\r\nContent-Length: "...), int64(length), 10)
	}

	return append(b, "\r\n\r\n"...), nil
}

// visible reports whether s has no control bytes and no spaces, so that it can
// stand in the first lines of a request.
func visible(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] == 0x7f {
			return false
		}
	}

	return true
}

// withoutZone takes the zone off an IPv6 address, which means something on one
// machine only.
func withoutZone(host string) string {
	if !strings.HasPrefix(host, "[") {
		return host
	}

	end := strings.LastIndexByte(host, ']')
	zone := strings.IndexByte(host, '%')

	if zone < 0 || end < zone {
		return host
	}

	return host[:zone] + host[end:]
}
