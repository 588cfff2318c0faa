package health

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// endpointBody is the stream of a backend of 2024-11-05, with the address for messages as mcp-go takes it. Backends name
// themselves in it, and not always as we do: localhost, say, where we were told 127.0.0.1. As in the proxy, messages go to
// the host that the stream came from, and another one is refused.
type endpointBody struct {
	io.Closer

	req  *http.Request
	x    *exchange
	in   *eventReader
	out  bytes.Buffer // read, and rewritten
	seen bool         // the address; what follows passes as it is
}

func newEndpointBody(body io.ReadCloser, req *http.Request, x *exchange) *endpointBody {
	return &endpointBody{Closer: body, req: req, x: x, in: newEventReader(body, watchMessageMax)}
}

// Read implements [io.Reader].
func (b *endpointBody) Read(p []byte) (int, error) {
	for b.out.Len() == 0 {
		if b.seen {
			return b.in.r.Read(p)
		}
		if err := b.event(); err != nil {
			return 0, err
		}
	}
	return b.out.Read(p)
}

// event takes the next event.
func (b *endpointBody) event() error {
	var event, data string
	var lines bytes.Buffer
	for {
		line, err := b.in.line()
		if err != nil {
			return err
		}
		lines.Write(line)
		lines.WriteByte('\n')
		if len(line) == 0 {
			break
		}
		field, value, _ := strings.Cut(string(line), ":")
		value = strings.TrimPrefix(value, " ")
		switch field {
		case "event":
			event = value
		case "data":
			data = value
		}
	}
	if event != "endpoint" {
		b.out.Write(lines.Bytes())
		return nil
	}
	b.seen = true
	b.out.WriteString("event: endpoint\ndata: " + b.address(data) + "\n\n")
	return nil
}

// address returns the address for messages. One on another host stays, and mcp-go refuses it.
func (b *endpointBody) address(named string) string {
	to, err := b.req.URL.Parse(strings.TrimSpace(named))
	if err != nil {
		return named
	}
	web := to.Scheme == "http" || to.Scheme == "https"
	if to.Scheme == b.req.URL.Scheme && sameHost(to, b.req.URL) || web && b.req.Host != "" && strings.EqualFold(to.Host, b.req.Host) {
		next := url.URL{Scheme: b.req.URL.Scheme, Host: b.req.URL.Host, Path: to.Path, RawPath: to.RawPath, RawQuery: to.RawQuery}
		return next.String()
	}
	b.x.note(func(o *outcome) { o.foreign = to.Host })
	return named
}
