package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"
)

// runReverse is a bare reverse proxy, set up as well as it can be without code of
// one's own.
func runReverse(addr, upstream string) error {
	u, err := url.Parse(upstream)
	if err != nil {
		return err
	}

	s := &http.Server{
		Addr: addr,
		Handler: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u) },
			Transport: &http.Transport{MaxIdleConnsPerHost: 512, IdleConnTimeout: 4 * time.Second, DisableCompression: true},
		},
		ReadHeaderTimeout: 10 * time.Second,
	}

	return s.ListenAndServe()
}
