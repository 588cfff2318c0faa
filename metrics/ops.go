package metrics

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Ops answers the probes of the ops listener. Each function returns nil when all
// is well, else the reason, which is shown to whoever asks: it must carry no
// secret. The functions are called on every probe, from many goroutines, and
// must return quickly. A nil function always succeeds.
type Ops struct {
	// Live says whether the process should go on. Restarting it must be able to
	// cure what Live complains about, so it never looks at a backend or an agent
	// server.
	Live func() error
	// Ready says whether new clients should be sent here.
	Ready func() error
	// Started says whether the start is over: listeners bound and the store open.
	// It must not wait for the backend, which on Kubernetes starts only after the
	// startup probe of a sidecar has passed.
	Started func() error
}

// Handler serves /metrics, /livez, /readyz and /startupz to GET and HEAD. Nothing
// it serves changes anything. Probes answer 200 "ok", or 503 and the reason.
// Metrics come as OpenMetrics or in the Prometheus formats, as the scraper asks.
//
// Web pages can't read it: a foreign Origin gets 403, and so does a host name
// other than localhost that arrives over loopback (DNS rebinding).
func (o Ops) Handler(reg *prometheus.Registry) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(reg, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	mux.Handle("GET /livez", probe("live", o.Live))
	mux.Handle("GET /readyz", probe("ready", o.Ready))
	mux.Handle("GET /startupz", probe("started", o.Started))

	return refuseWebPages(mux)
}

func probe(state string, check func() error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		h := w.Header()
		h.Set("Content-Type", "text/plain; charset=utf-8")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")

		answer := "ok\n"

		if check != nil {
			if err := check(); err != nil {
				w.WriteHeader(http.StatusServiceUnavailable)

				answer = fmt.Sprintf("not %s: %v\n", state, err)
			}
		}

		_, _ = io.WriteString(w, answer) // the prober is gone: nobody to tell
	})
}

func refuseWebPages(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case ForeignOrigin(r):
			http.Error(w, "requests of web pages are refused", http.StatusForbidden)
		case ReboundHost(r):
			http.Error(w, "over loopback, use localhost or an IP address as the host name", http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ForeignOrigin reports whether a web page of another origin made the request. The
// admin listeners refuse such requests too.
func ForeignOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return false
	}

	u, err := url.Parse(origin)

	return err != nil || u.Host == "" || !strings.EqualFold(u.Host, r.Host)
}

// ReboundHost reports whether the request came over loopback for a host name
// that belongs elsewhere. An IP address can't be rebound, and browsers always
// name a host.
func ReboundHost(r *http.Request) bool {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}

	addr, err := netip.ParseAddrPort(local.String())
	if err != nil || !addr.Addr().Unmap().IsLoopback() {
		return false
	}

	host := (&url.URL{Host: r.Host}).Hostname()
	if _, err := netip.ParseAddr(host); err == nil || host == "" {
		return false
	}

	return !strings.EqualFold(host, "localhost")
}
