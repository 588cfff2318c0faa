package proxy

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

const (
	maxRedirects = 3
	maxStale     = 3
	maxDrain     = 64 << 10
)

// errRedirect is returned for a redirect that the sidecar won't follow and the
// client must not see: to another host, or in circles. It is the backend's
// fault.
var errRedirect = errors.New("following a redirect of the backend")

// send does a request with the given body, and follows redirects by which the
// backend means itself (another slash, another path). The connection always goes
// to the host of req.URL: whatever a backend answers, nothing is ever sent
// elsewhere. Redirects that would turn a POST into a GET are returned as they
// are. A pooled connection that turns out to be dead before anything was written
// is no failure. The Trace is that of the last request.
func send(u Upstream, req *http.Request, body []byte) (*http.Response, Trace, error) {
	var seen []string

	for {
		resp, trace, err := sendFresh(u, req, body)
		if err != nil || !isRedirect(resp) {
			return resp, trace, err
		}

		if seen == nil {
			seen = []string{req.URL.RequestURI()}
		}

		next, err := redirectTarget(req, resp.Header.Get("Location"))
		if err == nil && !keepsMethod(req.Method, resp.StatusCode) {
			return resp, trace, nil
		}

		if err == nil {
			err = visit(&seen, next)
		}

		// Read to the end, so that the connection can be used again.
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrain)
		_ = resp.Body.Close()

		if err != nil {
			return nil, trace, err
		}

		again := req.WithContext(req.Context())
		again.URL = next
		req = again
	}
}

// sendFresh does a request, on a new connection where a pooled one is dead.
func sendFresh(u Upstream, req *http.Request, body []byte) (*http.Response, Trace, error) {
	for tries := 1; ; tries++ {
		setBody(req, body)

		resp, trace, err := u.Do(req)
		if err == nil || !trace.Reused || trace.Wrote || tries == maxStale {
			return resp, trace, err
		}

		u.CloseIdle() // the others of the pool are likely to be dead too
	}
}

// setBody gives the request a body that can be read once, without a way for the
// transport to read it again.
func setBody(req *http.Request, body []byte) {
	req.GetBody = nil
	req.ContentLength = int64(len(body))
	req.Body = http.NoBody

	if len(body) > 0 {
		req.Body = &sentBody{b: body}
	}
}

func isRedirect(resp *http.Response) bool {
	switch resp.StatusCode {
	case http.StatusMovedPermanently, http.StatusFound, http.StatusSeeOther,
		http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		return resp.Header.Get("Location") != ""
	}

	return false
}

func keepsMethod(method string, status int) bool {
	return status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect ||
		method == http.MethodGet || method == http.MethodHead
}

// visit notes one more hop.
func visit(seen *[]string, next *url.URL) error {
	uri := next.RequestURI()

	if slices.Contains(*seen, uri) {
		return fmt.Errorf("%w: it leads in circles", errRedirect)
	}

	if len(*seen) > maxRedirects {
		return fmt.Errorf("%w: more than %d in a row", errRedirect, maxRedirects)
	}

	*seen = append(*seen, uri)

	return nil
}

// redirectTarget resolves a Location against the request it answers. The host
// must be the backend's: as it was dialled, or as the request named it, since
// backends build absolute addresses from that.
func redirectTarget(req *http.Request, location string) (*url.URL, error) {
	to, err := req.URL.Parse(location)
	if err != nil {
		return nil, fmt.Errorf("%w: its Location is not a URL", errRedirect)
	}

	own := to.Scheme == req.URL.Scheme && sameHost(to, req.URL)

	if to.Scheme == "http" || to.Scheme == "https" {
		for _, name := range []string{req.Host, req.Header.Get("X-Forwarded-Host")} {
			own = own || name != "" && strings.EqualFold(to.Host, name)
		}
	}

	if !own || to.User != nil {
		return nil, fmt.Errorf("%w: it leads to another host", errRedirect)
	}

	next := *req.URL
	next.Path, next.RawPath, next.RawQuery, next.ForceQuery = to.Path, to.RawPath, to.RawQuery, to.ForceQuery

	if next.Path == "" {
		next.Path = "/"
	}

	return &next, nil
}

// sameHost reports whether two addresses are of one server. The names that a
// machine has for itself are one.
func sameHost(a, b *url.URL) bool {
	return (strings.EqualFold(a.Hostname(), b.Hostname()) || namesSelf(a) && namesSelf(b)) && effectivePort(a) == effectivePort(b)
}

func namesSelf(u *url.URL) bool {
	switch strings.ToLower(u.Hostname()) {
	case "localhost", "127.0.0.1", "::1":
		return true
	}

	return false
}

// effectivePort returns the port of a URL, the scheme's own where none is given.
func effectivePort(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}

	return defaultPort(u.Scheme)
}

func defaultPort(scheme string) string {
	switch scheme {
	case "http":
		return "80"
	case "https":
		return "443"
	}

	return ""
}
