package proxy

import (
	"errors"
	"net/http"
	"net/url"
	"syscall"
)

// RoundTripper makes an [Upstream] of something that answers requests without a
// network, such as a stdio backend. An error that wraps [syscall.ECONNREFUSED]
// says that the request had no effect; after any other it may have run.
func RoundTripper(rt http.RoundTripper) Upstream { return &roundTripper{rt} }

type roundTripper struct{ rt http.RoundTripper }

// Do implements Upstream.
func (t *roundTripper) Do(req *http.Request) (*http.Response, Trace, error) {
	resp, err := t.rt.RoundTrip(req)
	sent := !errors.Is(err, syscall.ECONNREFUSED)

	return resp, Trace{Connected: sent, Wrote: sent, WroteRequest: sent, Answered: err == nil}, err
}

// CloseIdle implements Upstream.
func (t *roundTripper) CloseIdle() {}

// pipedEndpoint stands for the address of a backend that has none.
func pipedEndpoint() *url.URL { return &url.URL{Scheme: "http", Host: "localhost", Path: "/"} }

// upstream is what carries the server's requests.
func (s *server) upstream() Upstream {
	if via := s.conf().Via; via != nil {
		return via
	}

	if s.p.config().StandardTransport {
		return s.p.standard
	}

	return s.p.own
}
