package main

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// recheckCertificate is how often the files are looked at, at most.
const recheckCertificate = time.Second

// certificate is a TLS certificate that is read again when its files change.
// While they can't be used, because only one of them was replaced yet for
// example, the last good one stays.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex // guards the rest
	current *tls.Certificate
	stamp   [2]fileStamp
	checked time.Time
	failed  string // the last error that was logged
}

// fileStamp changes when a file does.
type fileStamp struct {
	modified time.Time
	size     int64
}

func newCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	c.stamp = c.stat()
	pair, err := tls.LoadX509KeyPair(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the TLS certificate: %w (see --tls-cert-file and --tls-key-file)", err)
	}
	c.current, c.checked = &pair, time.Now()
	return c, nil
}

func (c *certificate) stat() (s [2]fileStamp) {
	for i, file := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(file); err == nil {
			s[i] = fileStamp{info.ModTime(), info.Size()}
		}
	}
	return s
}

// get is for [tls.Config.GetCertificate].
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.checked) < recheckCertificate {
		return c.current, nil
	}
	c.checked = time.Now()
	stamp := c.stat()
	if stamp == c.stamp && c.failed == "" {
		return c.current, nil
	}
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		if c.failed != err.Error() {
			c.log.Warn("TLS certificate can't be used, the last good one stays", "err", err)
		}
		c.failed = err.Error()
		return c.current, nil
	}
	c.current, c.stamp, c.failed = &pair, stamp, ""
	c.log.Info("TLS certificate replaced")
	return c.current, nil
}
