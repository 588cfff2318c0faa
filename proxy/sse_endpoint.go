package proxy

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
)

// maxAddress bounds the address that a backend may want messages posted to.
const maxAddress = 8 << 10

// errEndpoint refuses a backend's address for messages.
var errEndpoint = errors.New("the backend's endpoint event names no address on the backend's own host")

// messageURL resolves the address in a backend's endpoint event against the one of
// its stream. Like with redirects, requests go to the host that the stream came
// from, by whatever name the backend calls it, and another host is refused: what
// clients send isn't meant for it.
func messageURL(stream *http.Request, ref string) (*url.URL, error) {
	ref = strings.TrimSpace(ref)

	if ref == "" || len(ref) > maxAddress {
		return nil, fmt.Errorf("%w: it has %d bytes", errEndpoint, len(ref))
	}

	to, err := redirectTarget(stream, ref)
	if err != nil {
		named, _ := stream.URL.Parse(ref)
		if named == nil {
			named = &url.URL{}
		}

		return nil, fmt.Errorf("%w: it names %q", errEndpoint, clip(named.Host))
	}

	return to, nil
}

// moved takes the address for messages.
func (l *sseLink) moved(ref []byte) error {
	u, err := messageURL(l.stream, string(ref))
	if err != nil {
		return err
	}

	l.mu.Lock()
	defer l.mu.Unlock()

	l.address = u

	return nil
}

// messages is where the backend wants messages posted to.
func (l *sseLink) messages() *url.URL {
	l.mu.Lock()
	defer l.mu.Unlock()

	return l.address
}

// refuseEndpoint ends a client's stream behind which messages would go astray.
func (s *sseSession) refuseEndpoint(err error) (over bool) {
	const text = "the MCP server wants messages sent to another host, which is refused"

	s.srv.logger.Error("a client is refused: correct the base URL that the backend is configured with, or point upstream at the host that it names", "err", err)
	s.refuse(func(w http.ResponseWriter) { refuse(w, http.StatusBadGateway, nil, CodeBackendAway, text) })

	s.result = outcomeBackend
	_ = s.c.write(appendEvent(nil, "message", "", errorBody(nil, CodeBackendAway, text, nil)))

	return true
}
