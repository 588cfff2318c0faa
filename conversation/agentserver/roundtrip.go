package agentserver

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
)

// maxErrorBody bounds how much of a failed answer is read, in bytes.
const maxErrorBody = 64 << 10

var (
	errTooLarge = errors.New("message from the server is too large")
	errRedirect = errors.New("server redirects to another host: use the address it redirects to")
)

// httpStatusError is an answer of an MCP server that isn't a success and carries
// no JSON-RPC error.
type httpStatusError int

func (e httpStatusError) Error() string {
	return fmt.Sprintf("server answered HTTP %d", int(e))
}

// roundTripper sends the requests of one MCP client. It puts the configured
// headers on every request, because mcp-go leaves them out of the DELETE that
// ends a session; it bounds what is read of an answer, which mcp-go doesn't; and
// it makes a failed answer an error without the answer's text.
type roundTripper struct {
	base    http.RoundTripper
	headers map[string]string
	max     int64 // bytes of one message
}

// RoundTrip implements http.RoundTripper.
func (t *roundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	for name, value := range t.headers {
		req.Header.Set(name, value)
	}
	resp, err := t.base.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	mediaType, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if req.Method == http.MethodPost && resp.StatusCode >= 400 && resp.StatusCode != http.StatusNotFound {
		return failedAnswer(resp, mediaType)
	}
	resp.Body = &boundedBody{ReadCloser: resp.Body, max: t.max, events: mediaType == "text/event-stream"}
	return resp, nil
}

// failedAnswer keeps an answer that carries a JSON-RPC error, and turns any other
// into an error.
func failedAnswer(resp *http.Response, mediaType string) (*http.Response, error) {
	defer resp.Body.Close()
	if mediaType == "application/json" {
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody))
		var message struct {
			Error *struct{} `json:"error"`
		}
		if err == nil && json.Unmarshal(body, &message) == nil && message.Error != nil {
			resp.Body = io.NopCloser(bytes.NewReader(body))
			return resp, nil
		}
	}
	return nil, httpStatusError(resp.StatusCode)
}

// boundedBody fails when one message, which is one event of an event stream or
// else the whole body, has more than max bytes.
type boundedBody struct {
	io.ReadCloser
	max    int64
	events bool

	size int64 // of the message so far
	line int64 // of the line so far
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if !b.events {
		b.size += int64(n)
	} else {
		b.countEvents(p[:n])
	}
	if b.size > b.max {
		return 0, errTooLarge
	}
	return n, err
}

// countEvents counts the bytes since the last empty line.
func (b *boundedBody) countEvents(p []byte) {
	for _, c := range p {
		switch {
		case c == '\n' && b.line == 0:
			b.size = 0
			continue
		case c == '\n':
			b.line = 0
		case c != '\r':
			b.line++
		}
		b.size++
	}
}

// sameHost is a redirect policy: the headers hold credentials that are meant for
// one host.
func sameHost(req *http.Request, via []*http.Request) error {
	first := via[0].URL
	if req.URL.Scheme != first.Scheme || req.URL.Host != first.Host || len(via) >= 5 {
		return errRedirect
	}
	return nil
}

// withoutURL drops the request's URL, whose query may hold a secret, from an
// error of net/http.
func withoutURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}
